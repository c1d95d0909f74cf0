"""One norm of several tensors together, for penalties on a whole module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # what torch hands to a function with a gradient of its own

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils import parameters_to_vector


def joint_norm(values: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all their numbers; where it is 0 its gradient is 0 too."""
    apply: Callable[..., Tensor] = _JointNorm.apply
    return apply(*values)


class _JointNorm(torch.autograd.Function):
    """The norm of one long vector, with the bits that torch's own operations give.

    Those keep the vector for the way back, and make gradients that are parts of another one: each is copied when a
    second gradient is added to it.
    """

    @staticmethod
    def forward(ctx: Any, *values: Tensor) -> Tensor:
        """The order of a sum decides its last digit: it is that of the vector."""
        norm: Tensor = parameters_to_vector(values).norm()
        ctx.save_for_backward(norm, *values)
        return norm

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        """Each value through the norm, times the gradient that came."""
        norm, *values = ctx.saved_tensors
        # 0 through infinity instead of 0 through 0.
        norm = norm.masked_fill(norm == 0, torch.inf)
        return tuple(torch.div(value, norm).mul_(slope) for value in values)
