"""What a coordinator has moved, spent and refused so far: plain numbers that are read when somebody looks.

Counted where it happens (transports, intake, fleet, training), in the event loop alone, so there are no locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from pfl_common.numbers import Summed

Way: TypeAlias = Literal["down", "up"]
Freight: TypeAlias = Literal["init", "train", "evaluate", "finish", "calls"]
Phase: TypeAlias = Literal["wait", "seal", "download", "work", "upload", "verify", "fold", "commit"]

PHASES: tuple[Phase, ...] = get_args(Phase)
PLACES: tuple[tuple[Way, Freight], ...] = (
    *(("down", freight) for freight in get_args(Freight)),
    ("up", "train"),
    ("up", "calls"),
)
SITE_PHASES: tuple[Phase, ...] = ("download", "work", "upload", "verify")
"""What each site goes through by itself; the other phases are the round's."""


@dataclass
class Meter:
    """Counters that only grow, from the start of the program."""

    bytes: Counter[tuple[Way, Freight]] = field(default_factory=lambda: Counter(dict.fromkeys(PLACES, 0)))
    seconds: dict[Phase, Summed] = field(default_factory=lambda: {phase: Summed() for phase in PHASES})
    refusals: Counter[str] = field(default_factory=Counter)

    def moved(self, way: Way, freight: Freight, size: int) -> None:
        """Bytes of messages have crossed, whether or not they had crossed before."""
        self.bytes[way, freight] += size

    def took(self, phase: Phase, seconds: float) -> None:
        """A site, or the round, has been through a phase."""
        self.seconds[phase].add(max(0.0, seconds))


@dataclass(frozen=True)
class Lap:
    """What was moved and spent between two looks: seconds by phase, bytes as "down/train"."""

    seconds: dict[str, float]
    bytes: dict[str, int]


class Laps:
    """Takes the time of one attempt after the other: each lap begins where the last one ended."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._seconds: dict[str, float] = {}
        self._bytes: dict[str, int] = {}
        self.next()

    def next(self) -> Lap:
        """All since the last call."""
        seconds = {str(phase): summed.total for phase, summed in self._meter.seconds.items()}
        moved = {f"{way}/{freight}": count for (way, freight), count in self._meter.bytes.items()}
        lap = Lap(
            {phase: spent for phase in seconds if (spent := seconds[phase] - self._seconds.get(phase, 0.0))},
            {name: count for name in moved if (count := moved[name] - self._bytes.get(name, 0))},
        )
        self._seconds, self._bytes = seconds, moved
        return lap


class Spell:
    """The time during which at least one of several things goes on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._clock, self._going, self._began = clock, 0, 0.0

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """One of them."""
        if not self._going:
            self._began = self._clock()
        self._going += 1
        try:
            yield
        finally:
            self._going -= 1
            if not self._going:
                self.seconds += self._clock() - self._began
