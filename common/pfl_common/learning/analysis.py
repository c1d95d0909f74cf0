"""What representations look like after training: measures for reports, never part of a loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pfl_common import seeding

_NOTHING = 1e-12
"""Below this a spread is rounding, and a ratio of two of them says nothing."""


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
    directions = normalize(features.detach().double(), dim=1)
    centres = torch.stack([directions[labels == label].mean(dim=0) for label in sorted(set(labels.tolist()))])
    within = 1 - centres.square().sum(dim=1).mean()
    total = 1 - centres.mean(dim=0).square().sum()
    return Separation(float(within), float(total))


def linear_cka(first: Tensor, second: Tensor) -> float:
    """How alike two models represent the same inputs: 1 if equal but for rotation and scale, NaN if constant.

    CKA(X, Y) = ‖YᵀX‖²_F / (‖XᵀX‖_F · ‖YᵀY‖_F) of column-centred representations, one row per input.
    """
    if len(first) != len(second):
        raise ValueError(
            f"{len(first)} and {len(second)} inputs were shown to the models, expected the same ones"
        )
    x, y = _centred(first), _centred(second)
    scale = torch.linalg.matrix_norm(x.T @ x) * torch.linalg.matrix_norm(y.T @ y)
    return float(torch.linalg.matrix_norm(y.T @ x).square() / scale)


def _centred(representations: Tensor) -> Tensor:
    """Less the column means, at norm 1, so that CKA meets no tiny numbers; NaN where nothing varies."""
    values = representations.detach().double()
    spread = values - values.mean(dim=0)
    norm = torch.linalg.matrix_norm(spread)
    return spread / torch.where(norm > _NOTHING * torch.linalg.matrix_norm(values), norm, torch.nan)


def fixed_subset(samples: int, *, most: int = 2000) -> Tensor:
    """Places of at most so many samples, the same ones each time, in rising order."""
    order = torch.randperm(samples, generator=seeding.generator("analysis", "subset", samples))
    return order[:most].sort().values
