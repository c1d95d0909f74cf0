"""Arithmetic over the single models of many sites, kept by reference so that few are in memory at a time.

One model is read for each call of a function here and let go when it returns: a name in a loop would hold the last one
while the next is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from pfl_common.learning.arithmetic import in_double
from pfl_common.tensors.state import Kept, State
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Weighted

HELD = 3
"""Models that stay in memory while the others pass by, one at a time, to be compared with them."""

BLOCK = 1 << 16
"""Numbers widened at a time: half a megabyte, which stays in the cache and is little beside a model."""

Models: TypeAlias = Mapping[str, Kept]
"""Updates by site, each of which shows the site's model as its branch `model`."""


def mean(models: Models, otherwise: State) -> State:
    """The plain mean of all models, under the names of `otherwise`, which it is where there are none."""
    total, once = Sum(), torch.tensor(1)
    for site in sorted(models):
        total.add({name: Weighted(value, once) for name, value in _read(models[site]).items()})
    return total.mean(otherwise)


def mix(models: Models, weights: Mapping[str, float]) -> State:
    """The sum of weight x model, in float64 and in site order; a model of weight 0 is not read."""
    totals: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    for site in sorted(site for site, weight in weights.items() if weight):
        _add(totals, types, _read(models[site]), weights[site])
    return State({name: totals.pop(name).to(types[name]) for name in sorted(totals)})


def squared_distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The squared Euclidean distance of two models of the same names, in float64."""
    return sum(_apart(one[name], other[name]) for name in sorted(one))


def squared_distances(
    models: Models, known: Tensor, *, before: Sequence[str], new: Collection[str]
) -> Tensor:
    """The table of squared distances between all models, in the order of their sites' names.

    `known` is the table of the sites there were `before`; only pairs of which one is `new` are measured.
    """
    sites = sorted(models)
    place = {site: number for number, site in enumerate(sites)}
    table = torch.zeros(len(sites), len(sites), dtype=torch.float64)
    old = torch.tensor([place[site] for site in before], dtype=torch.int64)
    table[old[:, None], old] = known
    fresh = sorted(new)
    for start in range(0, len(fresh), HELD):
        held, others = fresh[start : start + HELD], set(sites) - set(fresh[:start])
        for one, other, square in _measure(models, held, sorted(others)):
            table[place[one], place[other]] = table[place[other], place[one]] = square
    return table


def _measure(models: Models, held: Sequence[str], others: Iterable[str]) -> list[tuple[str, str, float]]:
    """Distances of a few models, held in memory, from all others and from each other."""
    inside = {site: _read(models[site]) for site in held}
    found = [
        (one, other, squared_distance(inside[one], inside[other]))
        for one in held
        for other in held
        if one < other
    ]
    for other in sorted(set(others) - set(held)):
        found += _compare(inside, other, _read(models[other]))
    return found


def _compare(inside: Mapping[str, State], other: str, model: State) -> list[tuple[str, str, float]]:
    return [(one, other, squared_distance(own, model)) for one, own in inside.items()]


def _read(kept: Kept) -> State:
    return kept.load().under("model")


def _add(totals: dict[str, Tensor], types: dict[str, torch.dtype], model: State, weight: float) -> None:
    for name, value in model.items():
        if name not in totals:
            totals[name], types[name] = torch.zeros(value.shape, dtype=torch.float64), value.dtype
        total, numbers = totals[name].view(-1), value.reshape(-1)
        for start in range(0, len(numbers), BLOCK):
            total[start : start + BLOCK].add_(numbers[start : start + BLOCK].double(), alpha=weight)


def _apart(one: Tensor, other: Tensor) -> float:
    """In blocks: as wide copies of whole models the differences would need more room than the models."""
    a, b = one.reshape(-1), other.reshape(-1)
    square = 0.0
    for start in range(0, len(a), BLOCK):
        gap = in_double(a[start : start + BLOCK]) - in_double(b[start : start + BLOCK])
        square += float(torch.dot(gap, gap))
    return square
