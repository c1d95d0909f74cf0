"""Proximal terms: the distance of a model from another one, for losses that pull it back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def square_distance(module: nn.Module, reference: Mapping[str, Tensor]) -> Tensor:
    """‖w − w'‖²: the squares of all differences between a module's parameters and the reference, summed.

    Parameters are found by the names of the reference; a name that is no parameter is an error. Its gradient is
    2 (w − w') in the module and reaches the reference only where that takes gradients itself.
    """
    own = dict(module.named_parameters())
    return torch.stack([(own[name] - other).square().sum() for name, other in reference.items()]).sum()


def distance(module: nn.Module, reference: Mapping[str, Tensor]) -> float:
    """‖w − w'‖ as a number, for a curve."""
    return float(square_distance(module, reference).detach().sqrt())
