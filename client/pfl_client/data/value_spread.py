"""Warns of 16-bit pictures in which a few bright values leave all others few grey levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pfl_client.data.scaling import Wide
from pfl_common.spec.data_description import WHITEST

OUTSIDE = 0.001
"""The share of values that may make the range what it is without being looked at."""
LOST = 16
"""A range so many times wider than what nearly all values use leaves them 16 of 256 grey levels."""


@dataclass
class Spread:
    """A histogram of all values, and the positions of the smallest and the largest."""

    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(WHITEST + 1, np.int64))
    lowest: str = ""
    highest: str = ""

    def add(self, picture: Wide, position: str) -> None:
        """One more picture."""
        before, some = (self.low, self.high), bool(self.counts.any())
        self.counts += np.bincount(picture.ravel(), minlength=WHITEST + 1)
        if not some or self.low < before[0]:
            self.lowest = position
        if not some or self.high > before[1]:
            self.highest = position

    @property
    def low(self) -> float:
        """The smallest value."""
        return float(self._used[0]) if len(self._used) else 0.0

    @property
    def high(self) -> float:
        """The largest value."""
        return float(self._used[-1]) if len(self._used) else 0.0

    @property
    def _used(self) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self.counts)

    def remarks(self) -> Sequence[str]:
        """A warning if hardly any value makes the range as wide as it is."""
        if not self.counts.any():
            return []
        share = np.cumsum(self.counts) / self.counts.sum()
        first, last = (int(np.searchsorted(share, edge)) for edge in (OUTSIDE / 2, 1 - OUTSIDE / 2))
        if (last - first) * LOST >= self.high - self.low:
            return []
        odd = self.highest if self.high - last >= first - self.low else self.lowest
        return [
            f"99.9 % of the values of 16 bits are {first}..{last}, the range is {self.low:g}..{self.high:g}: most grey "
            f"levels are lost to a few values, such as in {odd}; the coordinator's --pixel-range {first}..{last} keeps "
            "them"
        ]
