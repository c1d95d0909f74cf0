"""A straight line through measured points, and what it leaves over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """cost = fixed + slope × size, fitted to points (size, cost)."""

    fixed: float
    slope: float
    points: tuple[tuple[float, float], ...]

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        """The line whose relative errors are least: a round of 200 sites must not decide alone."""
        sizes, costs = (np.array(part, dtype=np.float64) for part in zip(*points, strict=True))
        rows = np.stack([np.ones_like(sizes), sizes], axis=1) / costs[:, None]
        fixed, slope = np.linalg.lstsq(rows, np.ones_like(costs), rcond=None)[0]
        return cls(float(fixed), float(slope), tuple((float(size), float(cost)) for size, cost in points))

    def at(self, size: float) -> float:
        """The cost that the line says."""
        return self.fixed + self.slope * size

    @property
    def residuals(self) -> tuple[float, ...]:
        """By how much each point lies above the line, as a part of what the line says."""
        return tuple(cost / self.at(size) - 1 for size, cost in self.points)

    def to_json(self) -> dict[str, object]:
        """All of it."""
        return {**asdict(self), "residuals": self.residuals}
