"""A contestant's way to its accuracy: best and last, spread over sites, rounds and bytes to a target."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.report.averages import Reading, average, best_of_each, deviation

SHARE = 0.95
"""Of the reference's best accuracy: the target when a comparison's file names none."""


@dataclass(frozen=True)
class Course:
    """The course of one run."""

    best: float
    last: float
    deviation: float
    """Over sites, at the round with the best average."""
    variation: float
    """The same beside that average."""
    rounds: int | None
    """Until the average was at least the target; None if it never was."""
    exchanged: float | None
    """Bytes of a site until then."""

    @property
    def overfitting(self) -> float:
        """How far the last state lies below the best."""
        return self.best - self.last


@dataclass(frozen=True)
class Courses:
    """Means over seeds; rounds and bytes over the seeds that reached the target."""

    best: float
    overfitting: float
    deviation: float
    variation: float
    rounds: float | None
    exchanged: float | None
    reached: int
    seeds: int


def follow(outcome: Outcome, reading: Reading, target: float) -> Course | None:
    """One run's course; None where its curve is not known."""
    rounds, how, samples = outcome.rounds, reading.acc_average, outcome.samples.get("test", {})
    if not rounds:
        return None
    averages = {number: average(found, samples, how) for number, found in sorted(rounds.items())}
    top = max(averages, key=averages.__getitem__)
    best = averages[top]
    if reading.best_mode == "per_client":
        curves = {site: {number: found[site] for number, found in rounds.items()} for site in rounds[top]}
        best = best_of_each(curves, samples, how)
    spread = deviation(rounds[top])
    first = next((number for number, value in averages.items() if value >= target), None)
    return Course(
        best=best,
        last=averages[max(averages)],
        deviation=spread,
        variation=spread / averages[top] if averages[top] else 0.0,
        rounds=first,
        exchanged=None if first is None else outcome.exchanged.get(first, 0.0),
    )


def gather(courses: Sequence[Course]) -> Courses | None:
    """Over seeds."""
    if not courses:
        return None
    return Courses(
        best=_mean(one.best for one in courses),
        overfitting=_mean(one.overfitting for one in courses),
        deviation=_mean(one.deviation for one in courses),
        variation=_mean(one.variation for one in courses),
        rounds=_mean_of_known(one.rounds for one in courses),
        exchanged=_mean_of_known(one.exchanged for one in courses),
        reached=sum(one.rounds is not None for one in courses),
        seeds=len(courses),
    )


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
