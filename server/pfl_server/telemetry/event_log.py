"""The latest events of a run, for people: kept in memory, restored from the journal after a restart."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from pfl_common.spec.messages import Event, Level
from pfl_common.spec.run import ClientId
from pfl_server.telemetry.counters import Meter
from pfl_server.telemetry.course import Course
from pfl_server.telemetry.disclosure import Disclosure
from pfl_server.telemetry.joins_and_leaves import Coming, Comings
from pfl_server.telemetry.rejections import Refusals, readable

MOST = 50


class Events:
    """The newest events; an event repeated at once is counted, not listed again. Refusals have a few places of their
    own.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._newest: deque[tuple[Event, int]] = deque(maxlen=MOST)
        self.refusals = Refusals(clock)
        self._comings = Comings(clock)

    def add(self, words: str, level: Level = "info", *, at: float | None = None) -> None:
        """Something has happened, now or at another time. Peers' words may be among it: made one readable line."""
        words = readable(words)
        event, times = Event(self._clock() if at is None else at, level, words), 1
        if self._newest and self._newest[0][0].words == words:
            times += self._newest.popleft()[1]
        self._newest.appendleft((event, times))

    def newest(self) -> tuple[Event, ...]:
        """Newest first."""
        found = (
            event if times == 1 else Event(event.at, event.level, f"{event.words} ({times} times)")
            for event, times in self._newest
        )
        apart = (*self.refusals.newest(), *self._comings.newest())
        return tuple(sorted((*found, *apart), key=lambda event: -event.at))

    def recall(
        self,
        rounds: Iterable[Mapping[str, object]],
        courses: Iterable[Course],
        goodbyes: Mapping[ClientId, float],
    ) -> None:
        """Begin again with the attempts of a journal, and with the goodbyes that still count."""
        ended = {(course.round, course.attempt): course.ended for course in courses}
        leaving = sorted(((at, site) for site, at in goodbyes.items()), reverse=True)
        for row in rounds:
            place = cast(tuple[int, int], (row["round"], row["attempt"]))
            if place not in ended:
                continue
            while leaving and leaving[-1][0] < ended[place]:
                at, site = leaving.pop()
                self.left(site, at=at)
            if row["status"] == "committed":
                counted, lost = cast(list[ClientId], row["counted"]), cast(dict[ClientId, str], row["losses"])
                self.closed(place[0], counted=len(counted), losses=lost, at=ended[place])
            elif row["status"] == "abandoned":
                self.abandoned(*place, reason=str(row["reason"]), at=ended[place])
        for at, site in reversed(leaving):
            self.left(site, at=at)

    def left(self, site: ClientId, *, at: float | None = None) -> None:
        """A site said goodbye."""
        self.add(f"{site} left", at=at)

    def came(self, site: ClientId, how: Coming) -> bool:
        """A site joined, came back or left. One that does so again and again has one event, not a list of them; tells
        whether this one is listed.
        """
        listed = self._comings.take(site, how)
        if listed:
            self.add(f"{site} {how}")
        return listed

    def closed(
        self, number: int, *, counted: int, losses: Mapping[ClientId, str], at: float | None = None
    ) -> None:
        """A round was committed."""
        lost = ", ".join(f"{site} ({reason})" for site, reason in sorted(losses.items()))
        words = f"round {number} closed: {counted} counted" + (f"; lost: {lost}" if lost else "")
        self.add(
            words, "warning" if any(reason != "dropped" for reason in losses.values()) else "info", at=at
        )

    def abandoned(self, number: int, attempt: int, *, reason: str, at: float | None = None) -> None:
        """An attempt was given up."""
        self.add(f"round {number}, attempt {attempt}, was abandoned: {reason}", "warning", at=at)


@dataclass(frozen=True)
class Record:
    """Everything noted of a coordinator's life for others to see."""

    meter: Meter = field(default_factory=Meter)
    events: Events = field(default_factory=Events)
    disclosure: Disclosure = field(default_factory=lambda: Disclosure(fewest=1))
    """Without an operator's settings everything is told: there is nobody to keep it from."""

    def __post_init__(self) -> None:
        self.meter.on_refusal = self.events.refusals.take
