"""Maximum mean discrepancy: how differently two sets of features are distributed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pfl_common.learning.arithmetic import in_float32


@in_float32
def mmd2(first: Tensor, second: Tensor, bandwidths: Sequence[float]) -> Tensor:
    """The squared discrepancy of two sets of features, one row a sample: 0 if the sets are equal.

    MMD² = mean κ(a, a') + mean κ(b, b') − 2 mean κ(a, b) over all pairs, a sample with itself included (the biased
    estimate), with κ(a, b) = Σ_w exp(−‖a − b‖² / (2w)): a bandwidth w is a variance, and the kernels are summed.
    """
    within = _closeness(first, first, bandwidths).mean() + _closeness(second, second, bandwidths).mean()
    return within - 2 * _closeness(first, second, bandwidths).mean()


def _closeness(first: Tensor, second: Tensor, bandwidths: Sequence[float]) -> Tensor:
    """κ of each pair. The square is taken of differences: a root in between has no gradient where two are equal."""
    squares = (first[:, None] - second[None]).square().sum(dim=2)
    return torch.stack([torch.exp(squares / (-2 * width)) for width in bandwidths]).sum(dim=0)
