"""Maximum mean discrepancy: how differently two sets of features are distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # what torch hands to a function with a gradient of its own

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
    apply: Callable[[Tensor, Tensor], Tensor] = _SquareGaps.apply
    squares = apply(second, first)
    return torch.stack([torch.exp(squares / (-2 * width)) for width in bandwidths]).sum(dim=0)


class _SquareGaps(torch.autograd.Function):
    """‖a − b‖² of each pair of rows, with the bits that torch's own operations give.

    Those keep the differences of all pairs for the way back, as many numbers as rows times rows times features, and go
    through them twice more. b is the first argument since its gradient is added first there too.
    """

    @staticmethod
    def forward(ctx: Any, second: Tensor, first: Tensor) -> Tensor:
        """What both are is kept."""
        ctx.save_for_backward(second, first)
        return (first[:, None] - second[None]).square_().sum(dim=2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """2 (a − b) times the gradient that came, summed over the pairs that a row is in."""
        second, first = ctx.saved_tensors
        gaps = (first[:, None] - second[None]).mul_((2 * slope)[:, :, None])
        wanted_second, wanted_first = ctx.needs_input_grad
        return -gaps.sum(dim=0) if wanted_second else None, gaps.sum(dim=1) if wanted_first else None
