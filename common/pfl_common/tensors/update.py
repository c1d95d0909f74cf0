"""A site's update, and the names of its parts in a parcel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from pfl_common.tensors.state import State

SUM, WEIGHT, SHOW = "sum", "weight", "show"
"""The branches of an update's parcel: values to be summed, the weight of each, and what a site shows as it is."""

Quantity: TypeAlias = Literal["value", "variance", "number", "count", "one", "mask", "weight"]
"""What a tensor of an update is, so that one which cannot be that is refused:

value       numbers of a model; with variances they make up the update's norm
variance    the same, and never below 0
number      any finite number, bounded where it is used
count       whole, from 0 to the number of training samples the site declared when it joined
one         exactly 1
mask        0 or 1
weight      from 0 to the run's largest weight: of a method that does not say more
"""


@dataclass(frozen=True)
class Weighted:
    """A value and how much it counts: one number, one per row (class) or one per element (mask)."""

    value: Tensor
    weight: Tensor

    def __post_init__(self) -> None:
        agree(self.value.dtype, self.value.shape, self.weight.dtype, self.weight.shape)


@dataclass(frozen=True)
class Up:
    """A site's update: terms of sums and, for methods that declare it, single values shown."""

    summed: Mapping[str, Weighted] = field(default_factory=dict)
    shown: State = field(default_factory=State)


def flatten(up: Up) -> State:
    """An update as one State: each name below the branch it travels in."""
    values = {f"{SUM}.{name}": term.value for name, term in up.summed.items()}
    weights = {f"{WEIGHT}.{name}": term.weight for name, term in up.summed.items()}
    return State({**values, **weights, **up.shown.within(SHOW)})


def unflatten(state: State) -> Up:
    """The reverse of `flatten`."""
    values, weights = state.under(SUM), state.under(WEIGHT)
    return Up({name: Weighted(value, weights[name]) for name, value in values.items()}, state.under(SHOW))


def agree(
    dtype: torch.dtype, shape: tuple[int, ...], weight_dtype: torch.dtype, weight_shape: tuple[int, ...]
) -> None:
    """Whether such a weight can go with such a value."""
    if weight_dtype.is_floating_point and weight_dtype != torch.float32:
        raise TypeError(f"weights are integers or float32, got {weight_dtype}")
    if not dtype.is_floating_point:
        raise TypeError(f"summed values are floating point, got {dtype}")
    if weight_shape and weight_shape not in (shape[:1], shape):
        raise ValueError(
            f"a weight is one number, one per row or one per element; "
            f"value {tuple(shape)} got {tuple(weight_shape)}"
        )
