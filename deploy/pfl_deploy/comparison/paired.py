"""Differences between two contestants seed by seed, with Student's t interval over seeds.

Two runs of one seed share their data's order and first values, so their difference varies less than either of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Paired:
    """A mean over seeds, mostly of differences, and its interval; a single seed has no interval."""

    by_seed: Mapping[int, float]
    mean: float
    low: float | None
    high: float | None

    @property
    def n(self) -> int:
        """Over how many seeds."""
        return len(self.by_seed)


def pair(one: Mapping[int, float], other: Mapping[int, float]) -> Paired:
    """Differences of the seeds that both have."""
    return interval({seed: one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())})


def interval(by_seed: Mapping[int, float]) -> Paired:
    """The mean of values over seeds, and where it lies in 95 of 100 cases."""
    values = list(by_seed.values())
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Paired(by_seed, mean, None, None)
    half = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Paired(by_seed, mean, mean - half, mean + half)


def quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The number of standard errors on either side that hold this share of Student's t, by bisection."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """The share of Student's t between -t and t: its closed form for a whole number of degrees of freedom
    (Abramowitz and Stegun 26.7.3 and 26.7.4).
    """
    angle = math.atan(t / math.sqrt(freedom))
    squared = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for number in range(2 + odd, freedom - 1, 2):
        term *= squared * (number - 1) / number
        total += term
    share = math.sin(angle) * total
    return (angle + share) * 2 / math.pi if odd else share
