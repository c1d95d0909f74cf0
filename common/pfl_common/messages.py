"""What coordinator and site say to each other, as plain values; the transports only carry them.

Torch-free. A site is never asked who it is: the transport knows it from the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pfl_common.run import ClientId, Header, Task

Scores: TypeAlias = dict[str, list[float]]
"""Evaluation vectors by "point/split/view"; their layout is in `scores`."""

DECLINES = (
    "policy",
    "data_changed",
    "disk_full",
    "trainer_failed",
    "out_of_memory",
    "wrong_shape",
    "diverged",
    "stopping",
)
"""Every reason a site may give for not doing a task."""


OPENING = "opening"
"""The key of heartbeats before a site's first task: it fetches the first model and reads its data."""


@dataclass(frozen=True)
class Blob:
    """Bytes that can be fetched: named by their SHA-256."""

    digest: str
    size: int


@dataclass(frozen=True)
class Joined:
    """The run a site has been taken into, and the first model it shall start from."""

    spec: str
    init: Blob


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

    @property
    def key(self) -> str:
        """The task's name within the run."""
        return self.task.key


@dataclass(frozen=True)
class Over:
    """There will be no more tasks; `status` is finished, stopped or failed."""

    status: str
    words: str = ""


@dataclass(frozen=True)
class Offer:
    """A site has an upload ready."""

    key: str
    header: Header
    blob: Blob


@dataclass(frozen=True)
class Receipt:
    """The coordinator has this upload, whole and verified; repeating the offer gives the same receipt."""

    run: str
    key: str
    site: ClientId
    digest: str


@dataclass(frozen=True)
class SiteStatus:
    """One line of the coordinator's list of sites."""

    site: ClientId
    state: str
    seen_seconds: float
    doing: str = ""


@dataclass(frozen=True)
class RunStatus:
    """What `pfl status` shows."""

    run: str
    method: str
    status: str
    round: int
    rounds: int
    attempt: int
    words: str = ""
    awaited: tuple[ClientId, ...] = ()
    sites: tuple[SiteStatus, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
