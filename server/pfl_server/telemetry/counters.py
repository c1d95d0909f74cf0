"""Counters of a coordinator's traffic, time and refusals: plain numbers, read on demand.

Counted where it happens (transports, intake, fleet, training), in the event loop alone, so there are no locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from pfl_common.errors import Refused
from pfl_common.metric import Summed
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.rejections import Caller

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
    """Counters that only grow, also across restarts of the coordinator, as long as it has the same run."""

    bytes: Counter[tuple[Way, Freight]] = field(default_factory=lambda: Counter(dict.fromkeys(PLACES, 0)))
    seconds: dict[Phase, Summed] = field(default_factory=lambda: {phase: Summed() for phase in PHASES})
    refusals: Counter[str] = field(default_factory=Counter)
    closed: Reading = field(default_factory=Reading, repr=False)
    """As it stood when the last attempt ended: what has come since is the next one's."""
    on_refusal: Callable[[Refused, Caller], None] = field(default=lambda refused, caller: None, repr=False)

    def moved(self, way: Way, freight: Freight, size: int) -> None:
        """Bytes of messages have crossed, whether or not they had crossed before."""
        self.bytes[way, freight] += size

    def carried(self, way: Way, size: int, *, parcel: tuple[Freight, int]) -> None:
        """A call or an answer has crossed: what is a parcel in it counts as one, and the rest as calls."""
        freight, part = parcel
        self.moved(way, freight, part)
        self.moved(way, "calls", size - part)

    def refuse(self, refused: Refused, caller: Caller) -> None:
        """A message was refused: count its code and report it."""
        self.refusals[refused.code] += 1
        self.on_refusal(refused, caller)

    def took(self, phase: Phase, seconds: float) -> None:
        """A site, or the round, has been through a phase."""
        self.seconds[phase].add(max(0.0, seconds))

    def read(self) -> Reading:
        """All as it stands now."""
        return Reading(
            {f"{way}/{freight}": count for (way, freight), count in self.bytes.items()},
            {phase: (summed.count, summed.total) for phase, summed in self.seconds.items()},
            dict(self.refusals),
        )

    def go_on(self, before: Reading) -> None:
        """Count on from what an earlier life of the coordinator had counted; a release's own names are kept to."""
        for way, freight in PLACES:
            self.bytes[way, freight] += before.bytes.get(f"{way}/{freight}", 0)
        for phase, summed in self.seconds.items():
            count, total = before.seconds.get(phase, (0, 0.0))
            summed.count, summed.total = summed.count + count, summed.total + total
        self.refusals.update(before.refusals)


class Spell:
    """Measures the time during which at least one of several activities is under way."""

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
