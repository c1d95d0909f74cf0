"""Which tensors of a parcel are summed with which weights, and which of them lie side by side and are taken as one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from pfl_common.parcels import Place, Stretch, join
from pfl_common.remembered import remembered


@dataclass(frozen=True)
class Column:
    """Values that lie one after the other, and so do their weights: one number for each value."""

    names: tuple[str, ...]
    values: Stretch
    weights: Stretch

    @property
    def joined(self) -> bool:
        """Whether all of it can be taken at once; a value with a weight for each row or element stands alone."""
        return not self.weights.parts[0].entry.shape


@remembered
def pair(places: dict[str, Place]) -> dict[str, tuple[Place, Place]]:
    """Each summed value of a parcel with its weight, by name. What is alone or does not fit is an error."""
    values, weights = (
        {name.removeprefix(branch): place for name, place in places.items() if name.startswith(branch)}
        for branch in ("sum.", "weight.")
    )
    if values.keys() != weights.keys():
        alone = sorted(values.keys() ^ weights.keys())
        raise ValueError(f"a summed value and its weight come together, one is missing of {alone[:5]}")
    for name, value in values.items():
        weight = weights[name]
        agree(value.dtype, value.entry.shape, weight.dtype, weight.entry.shape)
    return {name: (values[name], weights[name]) for name in sorted(values)}


@remembered
def columns(places: dict[str, Place]) -> tuple[Column, ...]:
    """All that is summed, in few columns."""
    pairs = list(pair(places).items())
    ends = [i for i, (before, after) in enumerate(pairwise(pairs), 1) if not _adjoin(before[1], after[1])]
    bounds = [0, *ends, len(pairs)] if pairs else []
    return tuple(_column(dict(pairs[start:stop])) for start, stop in pairwise(bounds))


def _column(pairs: dict[str, tuple[Place, Place]]) -> Column:
    values, weights = zip(*pairs.values(), strict=True)
    return Column(tuple(pairs), join(values), join(weights))


def _adjoin(before: tuple[Place, Place], after: tuple[Place, Place]) -> bool:
    single = not (before[1].entry.shape or after[1].entry.shape)
    return single and all(
        (first.offset + first.size, first.dtype) == (second.offset, second.dtype)
        for first, second in zip(before, after, strict=True)
    )


def agree(
    dtype: torch.dtype, shape: tuple[int, ...], weight_dtype: torch.dtype, weight_shape: tuple[int, ...]
) -> None:
    """Whether such a weight can go with such a value."""
    if weight_dtype.is_floating_point and weight_dtype != torch.float32:
        raise TypeError(f"weights are integers or float32, got {weight_dtype}")
    if not dtype.is_floating_point:
        raise TypeError(f"summed values are floating point, got {dtype}")
    if weight_shape not in {(), shape[:1], shape}:
        raise ValueError(
            f"a weight is one number, one per row or one per element; value {shape} got {weight_shape}"
        )
