"""Measures of predictions beside the truth: accuracy, macro-F1, area under the ROC curve, calibration, intervals.

Each is a function of how often every sample counts. A bootstrap draws these counts anew: samples are prepared once,
and one pass over them gives all measures of a resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from pfl_common.randomness import generators

Whole: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]

BINS = 15
"""Of equal width, over the probability of the class that was predicted: as in Guo et al., 2017."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Bin:
    """The samples that were predicted with about the same confidence."""

    low: float
    high: float
    samples: int
    confidence: float
    """The mean probability of the predicted class."""
    accuracy: float


@dataclass(frozen=True)
class ClassFacts:
    """The measures of one class against the rest."""

    samples: int
    predicted: int
    precision: float
    recall: float
    f1: float
    auc: float


@dataclass(frozen=True)
class Interval:
    """A measure with its 95 % interval over resamples; NaN where the measure does not exist."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Scored:
    """Samples with their classes and the model's predictions."""

    truth: Whole
    predicted: Whole
    shares: Numbers
    """Probabilities, samples x classes."""
    groups: Whole | None = None
    """Which samples belong together, as numbers from 0."""

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.shares.shape[1])

    @cached_property
    def _ranks(self) -> list[tuple[Whole, Whole]]:
        """For each class the order of its probabilities, and where in it a new value begins."""
        ranked = []
        for shares in self.shares.T:
            order = np.argsort(shares, kind="stable")
            starts = np.flatnonzero(np.r_[True, np.diff(shares[order]) > 0])
            ranked.append((order, starts))
        return ranked

    @cached_property
    def _confidence(self) -> Numbers:
        confidence: Numbers = self.shares[np.arange(len(self)), self.predicted]
        return confidence

    @cached_property
    def _places(self) -> Whole:
        return np.clip(np.ceil(self._confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)

    @property
    def _once(self) -> Numbers:
        return np.ones(len(self))

    def confusion(self, counts: Numbers | None = None) -> Numbers:
        """How many of each class (rows) were predicted as each class (columns)."""
        counts = self._once if counts is None else counts
        places = self.truth * self.classes + self.predicted
        cells: Numbers = np.bincount(places, counts, self.classes**2).astype(np.float64)
        return cells.reshape(self.classes, self.classes)

    def aucs(self, counts: Numbers | None = None) -> Numbers:
        """For each class the chance that a sample of it has a higher probability for it than one of another class.

        Equal probabilities count half (Mann and Whitney); no number where all samples or none are of the class.
        """
        counts = self._once if counts is None else counts
        return np.array([self._auc(number, counts) for number in range(self.classes)])

    def _auc(self, number: int, counts: Numbers) -> float:
        order, starts = self._ranks[number]
        weights, own = counts[order], self.truth[order] == number
        inside = np.add.reduceat(weights * own, starts)
        outside = np.add.reduceat(weights * ~own, starts)
        pairs = inside.sum() * outside.sum()
        below = np.cumsum(outside) - outside / 2
        return float((inside * below).sum() / pairs) if pairs else math.nan

    def bins(self, counts: Numbers | None = None) -> list[Bin]:
        """The contents of each bin of confidence that is not empty."""
        counts = self._once if counts is None else counts
        held = np.bincount(self._places, counts, BINS)
        sure = np.bincount(self._places, counts * self._confidence, BINS)
        right = np.bincount(self._places, counts * (self.truth == self.predicted), BINS)
        return [
            Bin(place / BINS, (place + 1) / BINS, int(n), float(sure[place] / n), float(right[place] / n))
            for place, n in enumerate(held)
            if n
        ]

    def ece(self) -> float:
        """The expected calibration error: how far accuracy and confidence lie apart, over bins."""
        return sum(b.samples * abs(b.accuracy - b.confidence) for b in self.bins()) / len(self)

    def measure(self, counts: Numbers | None = None) -> dict[str, float]:
        """Accuracy, macro-F1 (over classes that occur or were predicted), macro AUC (one against the rest)."""
        cells = self.confusion(counts)
        f1 = rate_classes(cells)[2]
        aucs = self.aucs(counts)
        known = ~np.isnan(aucs)
        return {
            "accuracy": float(np.trace(cells) / cells.sum()),
            "macro_f1": float(np.nanmean(f1)),
            "auc": float(aucs[known].mean()) if known.any() else math.nan,
        }

    def class_facts(self) -> list[ClassFacts]:
        """Each class against the rest."""
        cells, aucs = self.confusion(), self.aucs()
        precision, recall, f1 = rate_classes(cells)
        return [
            ClassFacts(
                int(cells[c].sum()),
                int(cells[:, c].sum()),
                float(precision[c]),
                float(recall[c]),
                float(f1[c]),
                float(aucs[c]),
            )
            for c in range(self.classes)
        ]


def rate_classes(cells: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Precision, recall and F1 of each class; NaN where there is nothing to divide by."""
    right, samples, predicted = np.diag(cells), cells.sum(1), cells.sum(0)
    return _divide(right, predicted), _divide(right, samples), _divide(2 * right, samples + predicted)


def _divide(above: Numbers, below: Numbers) -> Numbers:
    shares: Numbers = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
    return shares


def bootstrap(
    scored: Scored, *, resamples: int, seed: int, progress: Callable[[int], None] = lambda done: None
) -> Mapping[str, Interval]:
    """Each measure with the range that holds it in 95 of 100 resamples (percentiles).

    Where groups are known whole groups are drawn: samples of one patient are not independent of each other.
    """
    values = scored.measure()
    drawn: dict[str, list[float]] = {name: [] for name in values}
    for number in range(resamples):
        for name, value in scored.measure(_draw(scored, seed, number)).items():
            drawn[name].append(value)
        progress(number + 1)
    return {name: _interval(value, drawn[name]) for name, value in values.items()}


def _draw(scored: Scored, seed: int, number: int) -> Numbers:
    """How often each sample counts in a resample."""
    units = len(scored) if scored.groups is None else int(scored.groups.max()) + 1
    chance = generators.generator(seed, "bootstrap", number)
    taken = torch.randint(units, (units,), generator=chance)
    counts: Numbers = torch.bincount(taken, minlength=units).double().numpy()
    return counts if scored.groups is None else counts[scored.groups]


def _interval(value: float, drawn: list[float]) -> Interval:
    known = np.array([one for one in drawn if not math.isnan(one)])
    if math.isnan(value) or not len(known):
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(known, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value, float(low), float(high))
