"""Pairs the summed tensors of a parcel with their weights, and joins neighbours so that they are summed as one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pfl_common.spec.memo import remembered
from pfl_common.tensors.layout import Place, Stretch, join
from pfl_common.tensors.update import SUM, WEIGHT, agree


@dataclass(frozen=True)
class Column:
    """Neighbouring tensors with neighbouring single-number weights, summed as one; or one tensor with any weights."""

    names: tuple[str, ...]
    values: Stretch
    weights: Stretch

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The values' own."""
        return tuple(part.entry.shape for part in self.values.parts)

    @property
    def joined(self) -> bool:
        """Whether all of it can be taken at once; a value with a weight for each row or element stands alone."""
        return not self.weights.parts[0].entry.shape


@remembered
def pair(places: dict[str, Place]) -> dict[str, tuple[Place, Place]]:
    """Each summed value of a parcel with its weight, by name. What is alone or does not fit is an error."""
    values, weights = (
        {name.removeprefix(f"{branch}."): at for name, at in places.items() if at.branch == branch}
        for branch in (SUM, WEIGHT)
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
