"""Folds the comings and goings of a site that joins and leaves all the time: a few are told one by one, then their sum.

A restless site must not drive out of sight what else has happened, nor cost the journal a line each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pfl_common.spec.messages import Event
from pfl_common.spec.run import ClientId

Coming: TypeAlias = Literal["joined", "came back", "left"]

QUIET_SECONDS = 600.0
"""A site that has neither come nor gone for so long is told of one by one again."""
MOST_LISTED = 4
"""Comings and goings of one site that are told one by one: it joins, leaves, comes back and leaves."""
MOST_SHOWN = 3
"""Restless sites that are shown at once."""


@dataclass
class _Bout:
    """The comings and goings of one site, until it is quiet."""

    at: float
    times: dict[Coming, int] = field(default_factory=dict)

    def tell(self, site: ClientId) -> Event:
        """All of it in one line."""
        came = self.times.get("joined", 0) + self.times.get("came back", 0)
        return Event(
            self.at, "warning", f"{site} joined {came} times and left {self.times.get('left', 0)} times"
        )


class Comings:
    """The sites that came or went lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bouts: dict[ClientId, _Bout] = {}
        self._ended: deque[Event] = deque(maxlen=MOST_SHOWN)

    def take(self, site: ClientId, how: Coming) -> bool:
        """Count one; whether it is to be told by itself."""
        now, bout = self._clock(), self._bouts.get(site)
        if bout is None or now - bout.at > QUIET_SECONDS:
            self._end(site)
            bout = self._bouts[site] = _Bout(now)
        bout.at, bout.times[how] = now, bout.times.get(how, 0) + 1
        return sum(bout.times.values()) <= MOST_LISTED

    def newest(self) -> tuple[Event, ...]:
        """The restless sites of this moment, newest first, and a few from before."""
        told = [bout.tell(site) for site, bout in self._bouts.items() if _is_restless(bout)]
        return tuple(sorted((*told, *self._ended), key=lambda event: -event.at)[:MOST_SHOWN])

    def _end(self, site: ClientId) -> None:
        bout = self._bouts.pop(site, None)
        if bout is not None and _is_restless(bout):
            self._ended.append(bout.tell(site))


def _is_restless(bout: _Bout) -> bool:
    return sum(bout.times.values()) > MOST_LISTED
