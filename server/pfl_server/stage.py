"""What a run is played with: the sites as it sees them, an attempt under way, and what others may see of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from pfl_common.messages import Over
from pfl_common.run import ClientId, Task
from pfl_common.tensors import State
from pfl_server.downloads import Downloads
from pfl_server.fleet import Prepare
from pfl_server.round import Event, Round
from pfl_server.sampling import Draw
from pfl_server.tally import PlainTally


class Fleet(Protocol):
    """The sites, as a run needs them."""

    def roster(self) -> tuple[ClientId, ...]: ...

    def present(self) -> tuple[ClientId, ...]: ...

    async def ask(self, client: ClientId, task: Task, prepare: Prepare) -> str: ...

    def expired(self, client: ClientId) -> bool: ...

    def give_up(self, client: ClientId, reason: str) -> None: ...

    def end(self, over: Over) -> None: ...


class Script(Protocol):
    """What happened in a run that is played again: it replaces chance and presence, and nothing else."""

    def draw(self, number: int) -> tuple[tuple[ClientId, ...], Draw]:
        """The candidates of a round, and its cohort with those who trained and were not counted as its drops."""


@dataclass
class Watch:
    """What can be seen of a run from outside: plain numbers, read when somebody looks."""

    status: str = "running"
    round: int = 0
    attempt: int = 0
    awaited: tuple[ClientId, ...] = ()
    outcomes: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    cohort: int = 0
    counted: int = 0
    round_seconds: float = 0.0
    scores: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class Opened:
    """An attempt that is under way: what was asked and what has come back so far."""

    task: Task
    state: State
    downloads: Downloads
    round: Round
    tally: PlainTally
    began: float
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
