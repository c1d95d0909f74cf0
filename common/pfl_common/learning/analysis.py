"""Measures that compare models of several sites, for offline analysis on one's own folders only."""

from __future__ import annotations

import torch
from torch import Tensor

_NOTHING = 1e-12
"""Below this a spread is rounding, and a ratio of two of them says nothing."""


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
