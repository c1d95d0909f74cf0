"""Accuracy by round from the sums of the sites' evaluations, which is all the coordinator has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pfl_common import evaluation
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind
from pfl_deploy.report.averages import Average

HEADLINE = "test/combined"
"""What the method itself predicts with, on each site's test data."""


@dataclass(frozen=True)
class Point:
    """The sites' measurements of one state; `after` is the number of rounds it was trained."""

    after: int
    sites: int
    mean: float
    """Over sites, each alike (macro)."""
    micro: float
    """Over all test samples together."""
    deviation: float
    worst_decile: float
    variation: float
    """Deviation beside the average that counts."""
    loss: float
    average: Average = "macro"

    @property
    def counts(self) -> float:
        """The average that is called the run's accuracy."""
        return self.micro if self.average == "micro" else self.mean


@dataclass(frozen=True)
class Measured:
    """All evaluations of a run: curves by measure (pre/test/combined), and the last state's sums."""

    curves: Mapping[str, tuple[Point, ...]]
    end: Mapping[str, Point]
    """What finished models reach; empty as long as the run is under way."""
    spread: Mapping[str, Mapping[int, int]]
    """For each measure's newest sum: how many sites reached which percent."""

    @property
    def headline(self) -> tuple[str, tuple[Point, ...]]:
        """The curve that counts: after training where a method is measured there, else before it."""
        for name in (f"post/{HEADLINE}", f"pre/{HEADLINE}"):
            if self.curves.get(name):
                return name, self._ended(name)
        return f"pre/{HEADLINE}", self._ended(f"pre/{HEADLINE}")

    @property
    def final(self) -> Point | None:
        """The finished models, or the newest state that was measured."""
        points = self.headline[1]
        return self.end.get(f"pre/{HEADLINE}") or (points[-1] if points else None)

    def measure(self, part: str) -> str:
        """The counterpart of the headline measure for another part of the data: validation, shifted."""
        return self.headline[0].replace("/test/", f"/{part}/")

    def final_of(self, part: str) -> Point | None:
        """As `final`, of another part; None where no site has one."""
        points = self.curve(self.measure(part))
        return self.end.get(f"pre/{part}/combined") or (points[-1] if points else None)

    @property
    def histogram(self) -> Mapping[int, int]:
        """The number of sites at each percentage, as `final` has it."""
        name = f"pre/{HEADLINE}" if f"pre/{HEADLINE}" in self.end else self.headline[0]
        return self.spread.get(name, {})

    @property
    def best(self) -> Point | None:
        """The round with the highest average, as papers report it; of equals the first."""
        return max(self.headline[1], key=lambda point: point.counts, default=None)

    def curve(self, name: str) -> tuple[Point, ...]:
        """The points of one measure, with the finished models at the end where they continue it."""
        return self._ended(name)

    def _ended(self, name: str) -> tuple[Point, ...]:
        points = self.curves.get(name, ())
        last, end = (points[-1].after if points else -1), self.end.get(name)
        return (*points, end) if end is not None and end.after > last else points


def read_measures(summed: Mapping[str, Scores], average: Average = "macro") -> Measured:
    """Read all sums. What was measured before a round's training is of the state after the round before."""
    curves: dict[str, dict[int, Point]] = {}
    end: dict[str, Point] = {}
    spread: dict[str, tuple[int, Mapping[int, int]]] = {}
    for kind, number, total in _in_order(summed):
        for name, values in sorted(evaluation.evaluations(total).items()):
            after = number - 1 if name.startswith("pre/") and kind is not Kind.FINISH else number
            point = _point(after, values, average)
            if kind is Kind.FINISH:
                end[name] = point
            else:
                curves.setdefault(name, {})[after] = point
            if after >= spread.get(name, (-1, {}))[0]:
                spread[name] = after, _histogram(values)
    return Measured(
        {name: tuple(points[after] for after in sorted(points)) for name, points in sorted(curves.items())},
        end,
        {name: bins for name, (_, bins) in sorted(spread.items())},
    )


def _in_order(summed: Mapping[str, Scores]) -> Iterator[tuple[Kind, int, Scores]]:
    """By round and attempt, a round's training before the end of all."""
    places = sorted(
        (int(number), kind == Kind.FINISH, key) for key in summed for number, kind in [_split(key)]
    )
    for number, _, key in places:
        yield Kind(_split(key)[1]), number, summed[key]


def _split(key: str) -> tuple[str, str]:
    number, _, kind = key.split("-")
    return number, kind


def _point(after: int, values: list[float], average: Average) -> Point:
    words = evaluation.summary(values)
    counts = words[f"acc_{average}"]
    return Point(
        after,
        int(words["sites"]),
        words["acc_macro"],
        words["acc_micro"],
        words["acc_std"],
        words["acc_worst_decile"],
        words["acc_std"] / counts if counts else math.nan,
        words["loss"],
        average,
    )


def _histogram(values: list[float]) -> dict[int, int]:
    """Percent and how many sites reached it, rounded to the nearest; nothing of those nobody reached."""
    bins = values[-evaluation.BINS :]
    return {percent: int(count) for percent, count in enumerate(bins) if count and math.isfinite(count)}
