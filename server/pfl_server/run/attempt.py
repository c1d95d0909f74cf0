"""The data types of a run: the sites as it sees them, an attempt in progress, and the numbers others may read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from pfl_common.metric import Summed
from pfl_common.spec.messages import Over
from pfl_common.spec.run import ClientId, Task
from pfl_common.tensors.state import State
from pfl_server.decisions.round import Event, Round
from pfl_server.decisions.sampling import Draw
from pfl_server.sites.assignment import Prepare
from pfl_server.sites.downloads import Downloads
from pfl_server.store.tallies import Tally
from pfl_server.telemetry.counters import Spell


class Fleet(Protocol):
    """The sites, as far as a run needs them."""

    def roster(self) -> tuple[ClientId, ...]: ...

    def present(self) -> tuple[ClientId, ...]: ...

    def present_among(self, sites: Iterable[ClientId]) -> frozenset[ClientId]: ...

    async def ask(self, client: ClientId, task: Task, prepare: Prepare) -> str: ...

    def expired(self, client: ClientId) -> bool: ...

    def is_opening(self, client: ClientId) -> bool: ...

    def trouble(self, client: ClientId) -> str: ...

    def give_up(self, client: ClientId, reason: str) -> None: ...

    def release(self, over: Over) -> None: ...

    def end(self, over: Over) -> None: ...


class Script(Protocol):
    """The recorded course of a replayed run: it replaces random draws and the presence of sites, nothing else."""

    def draw(self, number: int) -> tuple[tuple[ClientId, ...], Draw]:
        """The candidates of a round, and its cohort with those who trained and were not counted as its drops."""

    def after(self, number: int) -> int:
        """After which round the state stood that a round began from."""


OUTCOMES = ("committed", "abandoned")


@dataclass
class Watch:
    """A run's public numbers, plain values read on demand. Moments are Unix times."""

    status: str = "running"
    words: str = ""
    """What the operator has to know of the training under way; nothing while all is well."""
    patience: str = ""
    """How long the mean validation loss has not become better; nothing in a run that does not end by it."""
    started: float = 0.0
    round: int = 0
    attempt: int = 0
    opened: float | None = None
    closed: float | None = None
    awaited: tuple[ClientId, ...] = ()
    unserved: set[ClientId] = field(default_factory=set)
    """Once the rounds are over: sites that have not got the run's last model."""
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, Summed] = field(default_factory=lambda: {outcome: Summed() for outcome in OUTCOMES})
    """From opening to end, by outcome."""
    losses: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By reason, and how far the site was."""
    cohort: int = 0
    counted: int = 0
    took_part: Counter[ClientId] = field(default_factory=Counter)
    """In how many rounds each site was counted."""
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
    """Mean accuracy of the newest finished runs that this one can be compared with, by method."""
    recalled: bool = False
    """Whether all that the journal knows is in here: before, a counter would be seen to begin again at 0."""


@dataclass
class Opened:
    """An attempt in progress: what was asked of the sites and what has come back."""

    task: Task
    state: State
    downloads: Downloads
    round: Round
    tally: Tally
    began: float
    at: float
    """Unix time of `began`, which may lie in an earlier life of the coordinator."""
    sealing: Spell
    folding: Spell
    stages: dict[ClientId, str] = field(default_factory=dict)
    """How far sites were that are lost."""
    changes: dict[ClientId, float] = field(default_factory=dict)
    """How far counted updates went from what their sites were sent; nothing where nobody looks at it."""
    took: dict[ClientId, float] = field(default_factory=dict)
    """Seconds from its opening until each site had answered."""
    lost_after: dict[ClientId, float] = field(default_factory=dict)
    """And until each site was lost that had not."""
    skipped: frozenset[ClientId] = frozenset()
    """Sites that were asked and are not waited for."""
    doubted: frozenset[ClientId] = frozenset()
    """Sites that were lost when they were asked last."""
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    def held(self) -> dict[ClientId, float]:
        """For how many seconds each lost site was waited for when the last of the others had answered."""
        last = max(self.took.values(), default=0.0)
        return {site: max(0.0, seconds - last) for site, seconds in self.lost_after.items()}
