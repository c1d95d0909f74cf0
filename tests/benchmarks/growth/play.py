"""Plays federations of many sizes and tells what a round costs the coordinator: ours, and the round by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from tests.benchmarks.transport import ours, yardstick
from tests.benchmarks.transport.workload import SMALL, Workload

MIB = 1 << 20
COHORT = 50
REGISTERED = (COHORT, 4 * COHORT, 1_000, 10_000)
SETTLED = 2
"""Rounds left out beside the first one: they make the spool's files, which later rounds write over. Where the system
has to fetch each page from its host, as in many virtual machines, that takes three times a round's own processor.
"""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Cost:
    """What a round costs, on average over those that count."""

    sites: int
    registered: int
    model_bytes: int
    round_seconds: float
    cpu_seconds: float
    """Of the coordinator's process."""
    resident_bytes: int = 0
    by_hand_round_seconds: float | None = None
    by_hand_cpu_seconds: float | None = None

    def to_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """The federations to play: each with sites that are real daemons, many to a process, without trainers."""

    many_sites: tuple[Workload, ...]
    """More and more sites with a small model."""
    large_models: tuple[Workload, ...]
    """A few sites with larger and larger models."""
    registered: tuple[Workload, ...]
    """More and more registered sites, of which each round asks as many."""


def full_plan(*, most: int, room: int) -> Plan:
    """What B13 asks for; the last row with so many registered sites, or as many as there is room for."""
    room = max(COHORT, room // 100 * 100)
    registered = sorted({min(count, room) for count in REGISTERED if count <= most})
    rounds = {2: 60, 10: 40, 50: 20, 200: 10}
    sizes = (1, 10, 45, 100, 200)
    return Plan(
        tuple(Workload(count, SMALL, rounds=played, light=True) for count, played in rounds.items()),
        tuple(Workload(4, size * MIB // 4, rounds=8, light=True) for size in sizes),
        tuple(map(crowd, registered)),
    )


def quick_plan() -> Plan:
    """The same with next to nothing: shows that it runs."""
    return Plan(
        (Workload(2, 2_000, rounds=4, light=True), Workload(4, 2_000, rounds=4, light=True)),
        (Workload(2, 20_000, rounds=4, light=True), Workload(2, 400_000, rounds=4, light=True)),
        (Workload(6, 2_000, rounds=4, participation="0.5", light=True),),
    )


def crowd(registered: int) -> Workload:
    """So many registered sites, of which each round asks fifty."""
    share = COHORT / registered
    return Workload(registered, SMALL, rounds=20, participation=f"{share:g}", light=True)


def play(workload: Workload, home: Path, *, by_hand: bool) -> Cost:
    """One federation, and beside it the round by hand where it is asked for."""
    recording = _in(home / "ours", lambda place: ours.play(workload, place))
    rounds = recording.rounds[SETTLED:]
    start, end = recording.commits[-1 - len(rounds)], recording.commits[-1]
    spent = recording.server.cpu_at(end) - recording.server.cpu_at(start)
    resident = max(sample.resident for sample in recording.server.between(start, end))
    hand = _in(home / "by hand", lambda place: yardstick.watch(workload, place)) if by_hand else None
    return Cost(
        workload.cohort,
        workload.sites,
        workload.model_bytes,
        median(rounds),
        spent / len(rounds),
        resident,
        median(hand.rounds) if hand else None,
        hand.cpu if hand else None,
    )


def _in(place: Path, work: Callable[[Path], Result]) -> Result:
    try:
        return work(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
