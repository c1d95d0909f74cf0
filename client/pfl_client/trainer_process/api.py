"""The interface through which the daemon uses a trainer. Torch-free.

Two things are Benches: `process.TrainerProcess`, over ZeroMQ to a process of its own, and the loopback of
`pfl simulate`. Both end in `trainer.session.Workbench`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from pfl_client.settings import MOST_BAD, follows_links
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Description, Task

Parcel: TypeAlias = bytes | memoryview | Path
"""Plain bytes of a parcel, or a file to map when there are too many of them for a message (`large_parcels`)."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of samples gone through since the last call."""


@dataclass(frozen=True)
class DataFolder:
    """The location of a site's data, and how strictly they are read."""

    path: Path
    site: str
    strict: bool = False
    device: str = "auto"
    threads: int = 0
    """The most threads a trainer may have on this machine, whatever the run says; 0 sets no limit."""
    hold_out: float = 0.0
    """Share of each class that a comparison holds back at sites without a validation part, however small they are."""
    validation: float | None = None
    """Share that this site holds back where it is large enough for that; None: what the run's specification says."""
    blind: bool = False
    """Leave the test parts out: a run that only chooses settings has nothing to measure on them."""
    most_bad: float = MOST_BAD
    """The share of picture files, rounded up, that may be unreadable."""
    cache: Path | None = None
    """Where decoded samples may be kept; None: in memory."""
    cache_bytes: int = 0
    """How much room they may take there."""
    in_memory: int = 256 << 20
    """Arrays of more bytes are read into the cache."""
    follow_links: bool = field(default_factory=follows_links)
    """Read what links in the folder lead to; without it they are an error."""
    sums: bool = False
    """Sum the training pictures too when they are described, which reads each of them whole: the run asks for it."""


@dataclass(frozen=True)
class Measured:
    """How good the model after a round was on the site's own validation part."""

    round: int
    accuracy: float
    loss: float
    samples: int

    def beats(self, other: Measured | None) -> bool:
        """By accuracy, then by loss, then because it is of an earlier round. Over another number of samples, those of
        data that have been changed since, the other says nothing.
        """
        if other is None or other.samples != self.samples:
            return True
        return (self.accuracy, -self.loss, -self.round) > (other.accuracy, -other.loss, -other.round)


@dataclass(frozen=True)
class BestSoFar:
    """Where the model of the best round is written, and the best before this task; None: no round was measured."""

    write_as: Path
    measured: Measured | None = None
    file: Path | None = None


@dataclass(frozen=True)
class Job:
    """One task and the files it reads and writes; every task starts from a vault generation, not from memory."""

    task: Task
    down: Parcel
    groups: tuple[str, ...]
    kept: Path | None
    """The vault generation to start from; None: only the first model."""
    keep_as: Path
    """Where the next generation is written (not committed: that is the daemon's decision)."""
    serve_as: Path | None = None
    """Where FINISH writes the complete model."""
    parcel_as: Path | None = None
    """Where an update too large for a message is written."""
    best: BestSoFar | None = None
    """For a run that keeps the model of the best round."""
    alone: bool = False
    """The site takes part in no round: it fits its own part to the shared state, and predicts with the result."""
    as_delta: bool = False
    """Whether the download is the change of what the vault generation says that this site was sent."""
    sent: str = ""
    """The hash of what the site was sent once it has this download; empty where downloads cross as values."""


@dataclass(frozen=True)
class Done:
    """The results of a job."""

    scores: Scores = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    up: Parcel | None = None
    groups: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    device: str = ""
    """Where it was computed."""
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes the trainer's process holds at the end of the job: "resident", and "device" on a graphics card."""
    halved: bool = False
    """Whether batches went through the network in two halves, because there is too little memory for a whole one."""
    best: Measured | None = None
    """The model that was written as the best; None: none was."""
    told: tuple[str, ...] = ()
    """Names of tensors that stay here and whose values the update tells all the same, by the method's design."""


class TrainerLost(Exception):
    """The trainer process ended in the middle of its work; the text says how (signal, exit code, out of memory)."""


class Bench(Protocol):
    """Does a site's tasks. Errors that a person can mend arrive as `errors.UserError`, as if raised here."""

    async def describe(self, folder: DataFolder) -> Description:
        """Look at the data folder: shape, class names, counts, warnings."""

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Take a run's specification and first model; read the data; refuse what does not fit together."""

    async def work(self, job: Job, progress: Progress) -> Done:
        """Do a task."""

    async def close(self) -> None:
        """End the trainer and give its memory back."""
