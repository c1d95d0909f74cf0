"""Pauses between attempts: each is twice the one before, up to a longest."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

_chance = secrets.SystemRandom()


@dataclass
class BackOff:
    """The pauses of one thing that is tried again and again."""

    first: float
    """Seconds before the second attempt."""
    longest: float
    varied: bool = False
    """At random between a half and the whole: many who lost the same peer shall not come back in the same second."""
    _taken: int = field(default=0, init=False)

    @property
    def at_longest(self) -> bool:
        """Whether the next pause is the longest."""
        return self._full() >= self.longest

    def take(self) -> float:
        """The seconds to wait now."""
        full = self._full()
        self._taken += 1
        return _chance.uniform(full / 2, full) if self.varied else full

    def begin_again(self) -> None:
        """Something went well: the next pause is the first one."""
        self._taken = 0

    def _full(self) -> float:
        # The doubling ends long before a float does.
        return min(self.first * 2.0 ** min(self._taken, 64), self.longest)
