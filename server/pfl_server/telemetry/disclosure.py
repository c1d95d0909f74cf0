"""What of a run's quality is told: accuracy, loss and diagnostics only over so many sites that a mean hides each.

What is computed with is not touched: the journal keeps the sums of every round, over however few sites. A replay, an
early end and a later report need them, and they lie with the coordinator's own state. A single site's report is
deleted as soon as it is summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pfl_common.evaluation import FEWEST_REPORTERS
from pfl_common.spec.messages import Point

MOST_NAMED = 1000
"""Sites with series of their own at most: Prometheus keeps each for ever."""


@dataclass(frozen=True)
class Disclosure:
    """What the operator lets others see."""

    fewest: int = FEWEST_REPORTERS
    by_site: bool = False
    """Whether each site has series of its own among the metrics."""

    def shows(self, reporters: float) -> bool:
        """Whether a mean over so many sites is told."""
        return reporters >= self.fewest

    def limit(self, point: Point) -> Point:
        """A round as it is told: without its accuracies, and without what the method found out, over too few sites."""
        if not self.shows(point.counted):
            point = replace(point, diagnostics={})
        if self.shows(point.measured):
            return point
        return replace(point, accuracy=None, spread=None, worst_decile=None)

    def limit_scores(self, scores: Mapping[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        """Summaries by split and view, without those over too few sites."""
        return {name: summary for name, summary in scores.items() if self.shows(summary["sites"])}
