"""The interface through which the daemon uses a trainer. Torch-free.

Two things are Benches: `process.TrainerProcess`, over ZeroMQ to a process of its own, and the loopback of
`pfl simulate`. Both end in `trainer.session.Workbench`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

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
    hold_out: float = 0.0
    """Share of each class of the training part that becomes the validation part of a site that has none."""
    blind: bool = False
    """Leave the test parts out: a run that only chooses settings has nothing to measure on them."""


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
    alone: bool = False
    """The site takes part in no round: it fits its own part to the shared state, and predicts with the result."""


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
