"""The weighted sum of many sites' updates.

The law: adding the same updates gives the same bits, in any process. Inside everything is float64; a weight is
an integer or a float32 and a value a float32, so each product is exact and only the additions round. Their order is
fixed by the caller (site order), so the order of arrival cannot matter.

A model may be larger than the memory that is left: values are taken in blocks, from tensors or straight from a parcel,
and a large mean is written to a file in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from pfl_common.spec.manifest import Manifest
from pfl_common.tensors import mapped
from pfl_common.tensors.fused_sums import Column, columns, pair
from pfl_common.tensors.layout import Place, Source, Window, fit, lay_out
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.state import State
from pfl_common.tensors.update import Weighted


class Total(Protocol):
    """What the coordinator's half of a method sees of the counted updates together."""

    @property
    def totals(self) -> State:
        """Weight x value, summed, in float64."""

    @property
    def weights(self) -> State:
        """The weights, summed, in float64."""

    def mean(self, otherwise: State) -> State:
        """Their mean under the names of `otherwise`, which also fills in where nothing was counted."""


REUSED = 512 << 20
"""Totals of up to so many bytes stay in memory between two sums."""


class Sum:
    """Totals by name: of weight times value, and of the weights."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}
        self._long: dict[tuple[str, ...], _Long] = {}
        self._warm = _Warm()
        self._spare: dict[tuple[str, ...], Tensor] = {}

    def begin(self) -> None:
        """Begin another sum, in the memory of the last one if that is not very much: fresh pages cost time."""
        inside = {name for names in self._long for name in names}
        alone: dict[tuple[str, ...], Tensor] = {
            (name,): total for name, total in self._totals.items() if name not in inside
        }
        reused = sum(total.nbytes for total in self._totals.values()) <= REUSED
        long = {names: column.total for names, column in self._long.items()}
        self._spare = {**alone, **long} if reused else {}
        self._totals, self._weights, self._long = {}, {}, {}

    def add(self, terms: Mapping[str, Weighted]) -> None:
        """Add one site's terms; a name may be new, its shapes may not change."""
        for name in sorted(terms):
            self._fold(name, _Whole(terms[name].value), _Whole(terms[name].weight))

    def add_parcel(self, source: Source, manifest: Manifest, groups: Iterable[str]) -> None:
        """Add what a parcel has to be summed; no tensor of it is ever whole in memory."""
        places = lay_out(manifest, groups)
        fit(source.size, places)
        values, weights = self._warm.windows(source)
        pairs = pair(places)
        for column in columns(places):
            if self._fold_column(column, values, weights):
                continue
            for name in column.names:
                value, weight = pairs[name]
                self._fold(name, _Parcelled(value, values), _Parcelled(weight, weights))

    def mean(self, otherwise: State) -> State:
        """Totals over weights under the names of `otherwise`, which also fills in where nothing was counted.

        A large result lies in a file without a name, mapped; its tensors are like any others.
        """
        counted = {name: value for name, value in otherwise.items() if self._counts(name)}
        with mapped.draft(counted) as draft:
            for name, value in counted.items():
                self._mean_of(name, value, draft)
            return State({**otherwise, **draft.tensors()}, kept=otherwise.kept)

    @property
    def totals(self) -> State:
        """Weight x value, summed, in float64."""
        return State(self._totals)

    @property
    def weights(self) -> State:
        """The weights, summed, in float64."""
        return State(self._weights)

    def _fold(self, name: str, value: _Numbers, weight: _Numbers) -> None:
        if name not in self._totals:
            self._totals[name] = self._room((name,), value.shape)
            self._weights[name] = mapped.zeros(weight.shape, torch.float64)
        total, weights = self._totals[name], self._weights[name]
        if (total.shape, weights.shape) != (value.shape, weight.shape):
            raise ValueError(
                f"{name!r} was added with shape {tuple(total.shape)} and weights {tuple(weights.shape)}, "
                f"now they are {tuple(value.shape)} and {tuple(weight.shape)}"
            )
        total, weights = total.view(-1), weights.view(-1)
        for cut in _cuts(value.shape, weight.shape):
            factor = self._warm.widen(weight.take(cut.first, cut.last), second=True)
            if not cut.start_in_row:
                weights[cut.first : cut.last].add_(factor)
            block = self._warm.widen(value.take(cut.start, cut.stop))
            if weight.shape:
                cut.in_rows(block).mul_(factor[:, None])
                total[cut.start : cut.stop].add_(block)
            else:
                # One pass instead of two: the product of a float32 with such a weight is exact, fused or not.
                total[cut.start : cut.stop].add_(block, alpha=factor.item())

    def _fold_column(self, column: Column, values: Window, weights: Window) -> bool:
        """Add neighbours as one vector, number by number the same; False if they have to be taken one by one."""
        long = self._join(column) if column.joined and len(column.names) <= BLOCK else None
        if long is None:
            return False
        factors = self._warm.widen(weights.take(column.weights.whole, 0, len(column.names)), second=True)
        if bool((factors != factors[0]).any()):
            return False
        long.weights.add_(factors)
        whole, factor = column.values.whole, factors[0].item()
        for start in range(0, whole.count, BLOCK):
            stop = min(start + BLOCK, whole.count)
            block = self._warm.widen(values.take(whole, start, stop))
            long.total[start:stop].add_(block, alpha=factor)
        return True

    def _join(self, column: Column) -> _Long | None:
        """The totals of a column as one vector; None if its names have totals elsewhere or of other shapes."""
        long = self._long.get(column.names)
        if long is not None:
            return long if long.shapes == column.shapes else None
        if not self._totals.keys().isdisjoint(column.names):
            return None
        total = self._room(column.names, (column.values.whole.count,))
        long = _Long(column.shapes, total, torch.zeros(len(column.names), dtype=torch.float64))
        pieces = torch.split(total, [part.count for part in column.values.parts])
        for name, piece, shape, weight in zip(column.names, pieces, column.shapes, long.weights, strict=True):
            self._totals[name], self._weights[name] = piece.view(shape), weight
        self._long[column.names] = long
        return long

    def _room(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
        spare = self._spare.pop(names, None)
        if spare is None or tuple(spare.shape) != tuple(shape):
            return mapped.zeros(shape, torch.float64)
        return spare.zero_()

    def _counts(self, name: str) -> bool:
        """Whether anything was counted for a name; with a weight per row or element some may still be zero."""
        return name in self._totals and bool(self._weights[name].any())

    def _mean_of(self, name: str, otherwise: Tensor, draft: mapped.Draft) -> None:
        if otherwise.shape != self._totals[name].shape:
            raise ValueError(
                f"{name!r} has shape {tuple(otherwise.shape)}, "
                f"its sum has {tuple(self._totals[name].shape)}: they must be equal"
            )
        total, weights = self._totals[name].view(-1), self._weights[name].view(-1)
        before = otherwise.detach().reshape(-1)
        for cut in _cuts(otherwise.shape, self._weights[name].shape):
            block, weight = self._warm.room(cut.stop - cut.start), weights[cut.first : cut.last]
            rows = cut.in_rows(total[cut.start : cut.stop])
            if bool(weight.all()):
                torch.div(rows, weight[:, None], out=cut.in_rows(block))
            else:
                counted = (weight != 0)[:, None]
                quotient = rows / torch.where(weight != 0, weight, 1.0)[:, None]
                fallen_back = torch.where(counted, quotient, cut.in_rows(before[cut.start : cut.stop]))
                cut.in_rows(block).copy_(fallen_back)
            draft.put(name, cut.start, block)


@dataclass(frozen=True)
class _Long:
    """The sums of a column, stored side by side; the totals and weights of its names are views of them."""

    shapes: tuple[tuple[int, ...], ...]
    total: Tensor
    weights: Tensor


class _Numbers(Protocol):
    """A tensor's numbers, from memory or from a parcel, read in the order of its rows."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def take(self, start: int, stop: int) -> Tensor: ...


class _Whole:
    """A tensor in memory."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self._flat = tuple(tensor.shape), tensor.detach().reshape(-1)

    def take(self, start: int, stop: int) -> Tensor:
        return self._flat[start:stop]


class _Parcelled:
    """A tensor in a parcel."""

    def __init__(self, place: Place, window: Window) -> None:
        self.shape, self._place, self._window = place.entry.shape, place, window

    def take(self, start: int, stop: int) -> Tensor:
        return self._window.take(self._place, start, stop)


class _Warm:
    """Memory for one block, reused for all of them: fresh memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self._wide = torch.empty(2, BLOCK, dtype=torch.float64)
        self._single = torch.empty(BLOCK)
        self._windows: tuple[Window, Window] | None = None

    def widen(self, block: Tensor, *, second: bool = False) -> Tensor:
        """The same numbers in float64; good until the next call for the same of the two places."""
        if block.dtype.itemsize == 2:
            # Two quick steps; there is no quick way from 16 bits to 64.
            block = self._single[: len(block)].copy_(block)
        return self._wide[int(second), : len(block)].copy_(block)

    def room(self, count: int) -> Tensor:
        """Room for so many numbers in float64, good until the next call for it or for `widen`."""
        return self._wide[0, :count]

    def windows(self, source: Source) -> tuple[Window, Window]:
        """One for values, one for weights."""
        if self._windows is None:
            self._windows = Window(source, BLOCK), Window(source, BLOCK)
        for window in self._windows:
            window.over(source)
        return self._windows


@dataclass(frozen=True)
class _Cut:
    """A block of a tensor: whole rows with their weights, or a part of one row that is too long."""

    start: int
    stop: int
    first: int
    last: int
    start_in_row: int = 0

    def in_rows(self, block: Tensor) -> Tensor:
        rows = self.last - self.first
        return block.view(rows, (self.stop - self.start) // rows)


def _cuts(shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> Iterator[_Cut]:
    """A tensor in blocks. With one weight for all it is a single row, with one per element each is a row."""
    rows, width = prod(weight_shape), prod(shape[len(weight_shape) :])
    if width > BLOCK:
        for row in range(rows):
            for start in range(0, width, BLOCK):
                begin = row * width
                yield _Cut(begin + start, begin + min(start + BLOCK, width), row, row + 1, start)
        return
    step = max(1, BLOCK // max(1, width))
    for row in range(0, rows, step):
        last = min(row + step, rows)
        yield _Cut(row * width, last * width, row, last)
