"""Proximal terms: the distance of a model from another one, for losses that pull it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any  # what torch hands to a function with a gradient of its own

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def square_distance(module: nn.Module, reference: Mapping[str, Tensor]) -> Tensor:
    """‖w − w'‖²: the squares of all differences between a module's parameters and the reference, summed.

    Parameters are found by the names of the reference; a name that is no parameter is an error. Its gradient is
    2 (w − w') in the module and reaches the reference only where that takes gradients itself.
    """
    return torch.stack(square_gaps(module, reference)).sum()


def square_gaps(module: nn.Module, reference: Mapping[str, Tensor]) -> list[Tensor]:
    """The same of each tensor, in the order of the reference."""
    own = dict(module.named_parameters())
    apply: Callable[[Tensor, Tensor], Tensor] = _SquareGap.apply
    return [apply(own[name], other) for name, other in reference.items()]


def distance(module: nn.Module, reference: Mapping[str, Tensor]) -> float:
    """‖w − w'‖ as a number, for a curve."""
    return float(square_distance(module, reference).detach().sqrt())


class _SquareGap(torch.autograd.Function):
    """The sum of (w − w')² of one tensor, with the bits that torch's own operations give.

    Those keep w − w' of every tensor for the way back, which is one more model in memory, and go through it twice more.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, other: Tensor) -> Tensor:
        """What both are is kept: they are in memory anyway."""
        ctx.save_for_backward(own, other)
        return torch.sub(own, other).square_().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor | None]:
        """2 (w − w'), times the gradient that came."""
        own, other = ctx.saved_tensors
        gap = torch.sub(own, other).mul_(2 * slope)
        return gap, -gap if ctx.needs_input_grad[1] else None
