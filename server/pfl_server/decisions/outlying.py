"""Decides which updates went too far to be counted, beside those of their round and of the rounds before.

A function of the set of updates and of what earlier rounds counted, never of the order of arrival. How far an update
went is the Euclidean norm of its difference from what its site was sent. Its limit is a multiple of a median, which
fewer than half of the sites cannot move: of this round's, or of the largest that the run has seen. A model that has
learnt hardly moves, and beside its last steps one honest stumble is a hundred times as far: what was usual while it
learnt can do no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import inf
from statistics import median

from pfl_common.spec.run import ClientId

ROUNDS = 5
"""Rounds in a row whose counted updates make one median: a round of two sites has too few."""
FEWEST_NOW = 3
"""Updates of a round from which on their median tells which is the odd one."""
FEWEST_BEFORE = 6
"""Counted updates of earlier rounds from which on theirs does."""


class Outlying:
    """Remembers how far counted updates went, and finds those that went too far."""

    def __init__(self, factor: float, before: Iterable[Mapping[ClientId, float]] = ()) -> None:
        """With a factor of 0 none ever goes too far."""
        self._factor = factor
        self._rounds: deque[tuple[float, ...]] = deque(maxlen=ROUNDS)
        self._largest = 0.0
        for changes in before:
            self.remember(changes)

    def remember(self, changes: Mapping[ClientId, float]) -> None:
        """A round was committed that counted these."""
        self._rounds.append(tuple(changes.values()))
        before = [change for round_ in self._rounds for change in round_]
        if len(before) >= FEWEST_BEFORE:
            self._largest = max(self._largest, median(before))

    def limit(self, changes: Mapping[ClientId, float]) -> float:
        """The largest change that is taken of a round; infinity as long as too few have been seen."""
        now = median(changes.values()) if len(changes) >= FEWEST_NOW else 0.0
        # Where most have not moved at all there is nothing to compare with.
        usual = max(now, self._largest)
        return self._factor * usual if self._factor and usual else inf

    def find(self, changes: Mapping[ClientId, float]) -> tuple[ClientId, ...]:
        """The sites of a round whose updates went too far."""
        limit = self.limit(changes)
        return tuple(sorted(site for site, change in changes.items() if change > limit))
