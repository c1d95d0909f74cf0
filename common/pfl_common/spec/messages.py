"""The messages between coordinator and site, as plain values; the transports only carry them.

Torch-free. A site is never asked who it is: the transport knows it from the certificate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue

from pfl_common.printable import printable
from pfl_common.spec.manifest import manifest_hash
from pfl_common.spec.run import ClientId, Header, Kind, RunSpec, Task

Scores: TypeAlias = dict[str, list[float]]
"""Evaluation vectors by "point/split/view", and what training said by "told/name"; their layout is in `evaluation`."""

DECLINES = (
    "policy",
    "data_changed",
    "disk_full",
    "trainer_failed",
    "out_of_memory",
    "too_few_samples",
    "wrong_shape",
    "diverged",
    "tampered",
    "stopping",
)
"""Every reason a site may give for not doing a task."""


OPENING = "opening"
"""The key of heartbeats before a site's first task: it fetches the first model and reads its data."""


MOST_SENTENCES, LONGEST_SENTENCE = 16, 1000
"""What sites and coordinator tell each other's people beside what they do."""
_BREAK = re.compile(r"[\r\n\t\v\f\x85\u2028\u2029]+")


def shorten(words: Iterable[str]) -> tuple[str, ...]:
    """A peer's sentences for people: not too many, not too long, each one line without signs that are obeyed."""
    return tuple(one_line(line) for line in islice(words, MOST_SENTENCES))


def one_line(words: str, most: int = LONGEST_SENTENCE) -> str:
    """A peer's sentence for people."""
    return printable(_BREAK.sub(" ", words[:most]))


@dataclass(frozen=True)
class Blob:
    """A file to transfer, named by a digest: of its bytes going down, of its frames' tags if it goes up sealed."""

    digest: str
    size: int


@dataclass(frozen=True)
class Seal:
    """The wrap and signature of a parcel; empty within one process."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")

    wrap: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True)
class Joined:
    """The run a site has been admitted to, the first model it starts from, and the coordinator's card."""

    spec: str
    init: Blob
    seal: Seal = field(default_factory=Seal)
    card: bytes = b""
    warnings: tuple[str, ...] = ()
    """What is odd about the sites' classes, for people."""


@dataclass(frozen=True)
class Gathering:
    """The reason why the run does not begin although enough sites have come."""

    words: tuple[str, ...]
    sums: bool = False
    """The site is to join again with sums over its training pictures."""


@dataclass(frozen=True)
class Mark:
    """One generation of a site's vault: the round and attempt it was made in."""

    round: int
    attempt: int


@dataclass(frozen=True)
class Assignment:
    """A task for this site, with what it needs to begin."""

    task: Task
    header: Header
    blob: Blob
    seal: Seal = field(default_factory=Seal)

    @property
    def key(self) -> str:
        """The task's name within the run."""
        return self.task.key


@dataclass(frozen=True)
class Visited:
    """A run and its newest shared state, for a site that takes part in no round."""

    joined: Joined
    last: Assignment
    """A FINISH after the last committed round, as for a site that was in none."""


@dataclass(frozen=True)
class Over:
    """No more tasks will follow; `status` is finished, stopped or failed."""

    status: str
    words: str = ""
    counted: int | None = None
    """In how many rounds an update of the site was counted, if the coordinator says so."""


@dataclass(frozen=True)
class Offer:
    """A site has an upload ready."""

    key: str
    header: Header
    blob: Blob
    seal: Seal = field(default_factory=Seal)


@dataclass(frozen=True)
class Receipt:
    """The coordinator has this upload, whole and verified; repeating the offer returns the same receipt."""

    run: str
    key: str
    site: ClientId
    digest: str
    signature: bytes = b""


SitePhase: TypeAlias = Literal["called", "working", "uploading", "waiting", "away", "left"]
Level: TypeAlias = Literal["info", "warning", "error"]
Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 64)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Seconds: TypeAlias = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
"""Also a Unix time. Bounds hold for what is read: whatever is computed with such numbers stays finite."""


NOT_SINCE = -1.0
"""Instead of seconds: the site was not heard since the coordinator was started, and when before is not known."""


@dataclass(frozen=True)
class SiteStatus:
    """One line of the coordinator's list of sites: its activity, as one word of a few and as a sentence."""

    site: ClientId
    state: str
    seen_seconds: Seconds
    """Since it was last heard, or NOT_SINCE."""
    doing: str = ""
    phase: SitePhase = "waiting"
    counted: Count = 0
    """In how many rounds an update of it was counted."""
    warnings: tuple[str, ...] = ()
    """What the site itself found odd about its data."""


@dataclass(frozen=True)
class Point:
    """One committed round: when it ended, how long it took, who was in it, and how good the model was after it.

    Accuracies are over the sites that measured, of their test samples; None where nobody has (yet). Bytes are all
    that crossed from the end of the attempt before to the end of this one. Diagnostics are what the coordinator's
    half of the method told of the round, by name.
    """

    round: Count
    ended: Seconds
    seconds: Seconds
    cohort: Count
    counted: Count
    lost: Count
    accuracy: Number | None = None
    spread: Number | None = None
    worst_decile: Number | None = None
    bytes_down: Count = 0
    bytes_up: Count = 0
    diagnostics: dict[str, Number] = field(default_factory=dict)
    measured: Count = 0
    """Sites that the accuracies are over; 0 also where the coordinator is of an older release, which does not say."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run, for people."""

    at: Seconds
    level: Level
    words: str


@dataclass(frozen=True)
class RunStatus:
    """The content of `pfl status` and of the status page. Moments are Unix times by the coordinator's clock."""

    run: str
    method: str
    status: str
    round: Count
    rounds: Count
    attempt: Count
    words: str = ""
    awaited: tuple[ClientId, ...] = ()
    """Sites the round waits for; once the run is over, those that have not got its last model."""
    sites: tuple[SiteStatus, ...] = ()
    scores: dict[str, Number] = field(default_factory=dict)
    started: Seconds = 0.0
    """When the run began; 0 before."""
    now: Seconds = 0.0
    spec: dict[str, JsonValue] = field(default_factory=dict)
    """What a person may want to know of the run's specification."""
    curve: tuple[Point, ...] = ()
    """Committed rounds, oldest first; of very many a part, evenly chosen, with the first and the last."""
    phases: dict[str, Number] = field(default_factory=dict)
    """Mean seconds by phase over the last rounds: of one site for what sites do, of the round for the rest."""
    events: tuple[Event, ...] = ()
    """What happened last, newest first."""
    opened: Seconds = 0.0
    """When the attempt under way was opened, and below how many of it were asked, are in and are lost; 0 between."""
    cohort: Count = 0
    counted: Count = 0
    lost: Count = 0
    warnings: tuple[str, ...] = ()
    """What is odd about the sites' classes."""
    refused: dict[ClientId, str] = field(default_factory=dict)
    """Sites that were not taken, and why; until they come back mended."""
    waiting: dict[ClientId, str] = field(default_factory=dict)
    """Sites that are invited and wait for the operator's approval, each with the fingerprint of its keys."""
    fewest_reporters: Count = 0
    """Over fewer sites a mean is not told; 0 of a coordinator of an older release, which tells all."""
    patience: str = ""
    """For how long the mean validation loss has not become better; nothing in a run that does not end by it."""


COORDINATOR = "coordinator"
"""The sender of all that goes down."""


def header_of_init(spec: RunSpec) -> Header:
    """The header of the first model, which belongs to no round."""
    return Header(
        spec.id,
        0,
        0,
        Kind.TRAIN,
        "init",
        "down",
        COORDINATOR,
        manifest_hash(spec.init_manifest),
        state=spec.hash,
        digests=spec.digests,
    )


def header_down(
    spec: RunSpec, task: Task, *, state: str = "", sent: str = "", as_delta: bool = False
) -> Header:
    """The header of a task's download; its groups are added when its content is known."""
    manifest = spec.delta(task.phase) if as_delta else spec.manifest(task.kind, task.phase, "down")
    return Header(
        run=spec.id,
        round=task.round,
        attempt=task.attempt,
        kind=task.kind,
        phase=task.phase,
        direction="down",
        sender=COORDINATOR,
        manifest=manifest_hash(manifest),
        state=state,
        digests=spec.digests,
        sent=sent,
    )


def header_up(
    spec: RunSpec, task: Task, site: ClientId, *, state: str, groups: tuple[str, ...] = ()
) -> Header:
    """The header of a site's update; where its content is not known yet, its groups are added later."""
    manifest = spec.manifest(task.kind, task.phase, "up")
    return Header(
        run=spec.id,
        round=task.round,
        attempt=task.attempt,
        kind=task.kind,
        phase=task.phase,
        direction="up",
        sender=site,
        manifest=manifest_hash(manifest),
        groups=groups,
        state=state,
    )
