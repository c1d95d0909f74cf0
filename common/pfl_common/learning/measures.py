"""Measures of representations after training, for diagnostics and reports; never part of a loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pfl_common.learning.arithmetic import in_double

_NOTHING = 1e-12
"""Below this a spread is rounding, and a ratio of two of them says nothing."""
_SMALL = 1e-5
"""A component of a unit vector up to this size is taken for zero (FedPick, Eq. 3)."""


@dataclass(frozen=True)
class Separation:
    """Mean cosine distance within a class, and between any two classes (a class and itself included)."""

    within: float
    total: float

    @property
    def explained(self) -> float:
        """R² = 1 − within / total: 1 when each class is one direction, NaN when all are the same one."""
        return 1 - self.within / self.total if self.total > _NOTHING else float("nan")


def separate_classes(features: Tensor, labels: Tensor) -> Separation:
    """Measure how far the classes present lie apart, with d(a, b) = 1 − cos(a, b) and self pairs included.

    The mean of d over all pairs of two classes is 1 − ⟨mean direction, mean direction⟩: no pair is visited.
    """
    centres = torch.stack([normalize(rows, dim=1).mean(dim=0) for rows in _by_class(features, labels)])
    within = 1 - centres.square().sum(dim=1).mean()
    total = 1 - centres.mean(dim=0).square().sum()
    return Separation(float(within), float(total))


def fisher_scores(features: Tensor, labels: Tensor) -> Tensor:
    """How well each component tells the classes apart: spread of the class means over spread within classes.

    F_k = Σ_j m_j (μ_kj − μ_k)² / Σ_j m_j σ²_kj, with m_j samples in class j and population variances (FedPick,
    Eq. 5-7). A component that does not vary at all scores 0; one that varies between classes alone scores NaN.
    """
    overall = in_double(features.detach()).mean(dim=0)
    between, within, size = (torch.zeros_like(overall) for _ in range(3))
    for rows in _by_class(features, labels):
        mean = rows.mean(dim=0)
        between += len(rows) * (mean - overall).square()
        within += (rows - mean).square().sum(dim=0)
        size += rows.square().sum(dim=0)
    # Equal values have a mean that differs from them in the last bit: squared, that is far below this.
    least = _NOTHING**2 * size
    ratio = torch.where(within > least, between / within, torch.nan)
    return torch.where(between > least, ratio, 0.0)


def mean_fisher_score(features: Tensor, labels: Tensor) -> float:
    """The mean of `fisher_scores` over the components that have one; NaN if none has."""
    return float(fisher_scores(features, labels).nanmean())


def class_cosines(cosines: Tensor, labels: Tensor) -> dict[str, float]:
    """From cosines of samples with each class's direction: the mean with its own, and with the nearest other one."""
    values = in_double(cosines.detach())
    own = torch.zeros_like(values, dtype=torch.bool).scatter_(1, labels.to(values.device)[:, None], True)
    rival = values.masked_fill(own, -torch.inf).amax(dim=1)
    return {"cosine/own": float(values[own].mean()), "cosine/rival": float(rival.mean())}


def sparsity(features: Tensor) -> float:
    """The fraction of components that are next to nothing beside their vector's length, mean over the vectors.

    A vector of zeros alone is wholly sparse. (FedPick, Eq. 3 and 4.)
    """
    return float(in_double(normalize(features.detach(), dim=1).abs() <= _SMALL).mean())


def most_selected(counts: Tensor) -> set[int]:
    """The half of the components that were selected most often; of equally frequent ones those with lower index."""
    order = counts.argsort(descending=True, stable=True)
    return set(order[: len(counts) // 2].tolist())


def overlap_of_selections(first: Tensor, second: Tensor) -> float:
    """The overlap of two domains' most selected halves: |A ∩ B| / |A ∪ B| (FedPick, Fig. 10).

    Takes how often each component was selected in each domain. Needs counts of several sites: for offline analysis.
    """
    if len(first) != len(second):
        raise ValueError(f"counts of {len(first)} and {len(second)} components, expected equally many")
    one, other = most_selected(first), most_selected(second)
    return len(one & other) / len(one | other) if one else float("nan")


def _by_class(features: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """The rows of each class present, in double precision; one class at a time, for all would be a second copy."""
    labels = labels.to(features.device)
    for label in sorted(set(labels.tolist())):
        yield in_double(features.detach()[labels == label])


def band(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean and ends of numbers that differ by site, told without saying whose each is: a picture with a band."""
    if not values:
        return {}
    return {f"{name}/mean": fmean(values), f"{name}/least": min(values), f"{name}/most": max(values)}
