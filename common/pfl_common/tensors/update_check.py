"""An update is looked at before it counts: its shape, NaN and infinity, what its tensors are, its norm, its change.

A site looks at its own before it sends, the coordinator at each that comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import inf, isfinite, sqrt
from typing import TypeAlias

import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.memo import MOST, remembered
from pfl_common.tensors.change_norm import Change
from pfl_common.tensors.fused_sums import pair
from pfl_common.tensors.layout import WIDEST, Place, Source, Stretch, fit, join, lay_out
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.pinning import pin
from pfl_common.tensors.rows import Places, Row, into_rows
from pfl_common.tensors.small_tensors import join as join_small
from pfl_common.tensors.state import State
from pfl_common.tensors.update import WEIGHT, Quantity

SMALL = 1 << 14
"""Numbers of a tensor that is looked through together with others: by itself the call would cost more than the look."""

MODEL = frozenset({"value", "variance"})
"""Quantities that are numbers of a model: these make up an update's norm."""


@dataclass(frozen=True)
class Terms:
    """What a run takes of one site's update."""

    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    """By a tensor's name in the parcel; one that is not named is a weight or a value."""
    declared: int | None = None
    """Training samples the site declared when it joined; None if it told none."""
    largest_weight: float = inf
    largest_norm: float = inf
    """Euclidean, of all values as they were sent, without their weights."""
    largest_change: float = inf
    """The same of their differences from what they are compared with."""
    sent: Mapping[str, Tensor] = field(default_factory=dict)
    """What an update is compared with, by a tensor's name in the parcel."""

    def of(self, name: str) -> Quantity:
        """What a tensor is."""
        found = self.quantities.get(name)
        return found or ("weight" if name.startswith(f"{WEIGHT}.") else "value")

    def kinds(self, places: Places) -> tuple[_Alike, ...]:
        """The tensors of a row by what they are, of one row always the same ones."""
        # By the row itself, which is held beside them: while it lives no other has its number.
        held = self._known.get(id(places))
        if held is None:
            held = self._known[id(places)] = places, _sort(places, self)
        return held[1]

    @cached_property
    def _known(self) -> dict[int, tuple[Places, tuple[_Alike, ...]]]:
        """Of a run's parcels, which have few rows."""
        return {}

    @property
    def most(self) -> float:
        """The largest count."""
        return self.largest_weight if self.declared is None else min(self.declared, self.largest_weight)


Spans: TypeAlias = tuple[tuple[Quantity, Stretch], ...]

ANY = Terms()
"""Takes whatever can be summed."""


def check_update(source: Source, manifest: Manifest, groups: Iterable[str], terms: Terms = ANY) -> float:
    """Refuse an update that does not fit its manifest or would spoil a sum; it is read once, block by block.

    Gives the norm of its change; 0 where there is nothing to compare it with.
    """
    check, at = Check(source.size, manifest, groups, terms), 0
    while wanted := check.wanted:
        source.read_into(at, wanted)
        at += len(wanted)
        check.advance(len(wanted))
    return check.finish()


class Check:
    """A check of an update that is given its bytes in their order, all at once or as they come."""

    def __init__(self, size: int, manifest: Manifest, groups: Iterable[str], terms: Terms = ANY) -> None:
        places = lay_out(manifest, groups)
        fit(size, places)
        try:
            pair(places)
        except (TypeError, ValueError) as error:
            raise Refused("manifest", str(error)) from None
        self._terms, self._change, self._square = terms, Change(terms.sent), 0.0
        self._blocks = _in_blocks(places, terms)
        self._buffer = torch.empty(BLOCK * WIDEST, dtype=torch.uint8)
        self._bytes = self._buffer.numpy().data
        self._begin()

    @property
    def wanted(self) -> memoryview:
        """Where its next bytes belong: those of a block, as many as are missing; nothing when there are no more."""
        return self._bytes[self._filled : self._length]

    def advance(self, count: int) -> None:
        """So many of the bytes that are wanted are there; a whole block is looked at."""
        self._filled += count
        if self._filled == self._length:
            self._look()
            self._begin()

    def finish(self) -> float:
        """All has been looked at: hold all of it together to its bounds; gives the norm of its change."""
        _bound("norm", sqrt(self._square), self._terms.largest_norm)
        _bound("change", self._change.norm, self._terms.largest_change)
        return self._change.norm

    def _begin(self) -> None:
        self._block, self._filled, self._length = next(self._blocks, None), 0, 0
        if self._block is not None:
            self._length = self._block.count * self._block.stretch.whole.dtype.itemsize

    def _look(self) -> None:
        if self._block is None:
            return
        quantity, stretch, start = self._block.quantity, self._block.stretch, self._block.start
        numbers = self._buffer[: self._length].view(stretch.whole.dtype)
        norm = _look_at(stretch, start, numbers, quantity=quantity, terms=self._terms)
        if quantity in MODEL:
            self._square += norm * norm
            self._change.add(stretch, start, numbers)


@dataclass(frozen=True)
class _Block:
    """Some numbers of a stretch, all of one quantity."""

    quantity: Quantity
    stretch: Stretch
    start: int
    count: int


def _in_blocks(places: Mapping[str, Place], terms: Terms) -> Iterator[_Block]:
    """A whole parcel, in order."""
    for quantity, stretch in _spans(places, terms):
        for start in range(0, stretch.whole.count, BLOCK):
            yield _Block(quantity, stretch, start, min(BLOCK, stretch.whole.count - start))


def _spans(places: Mapping[str, Place], terms: Terms) -> Spans:
    """A whole parcel as few long vectors, in order, each of one type and one quantity; of one layout always the same
    ones, as long as a run's quantities are.
    """
    known = _known_spans(terms.quantities)
    # By the layout itself, which is held beside them: while it lives no other has its number.
    held = known.get(id(places))
    if held is None:
        if len(known) >= MOST:
            known.clear()
        held = known[id(places)] = places, tuple(_find_spans(places, terms))
    return held[1]


@remembered
def _known_spans(quantities: Mapping[str, Quantity]) -> dict[int, tuple[Mapping[str, Place], Spans]]:
    """What was found for the layouts of a run's parcels; they are as few as its manifests."""
    del quantities  # known by what it is, not by what is in it
    return {}


def _find_spans(places: Mapping[str, Place], terms: Terms) -> Iterator[tuple[Quantity, Stretch]]:
    def kind(place: Place) -> tuple[str, str, Quantity]:
        return place.branch, place.entry.dtype, terms.of(place.entry.name)

    for (_, _, quantity), parts in groupby(places.values(), key=kind):
        yield quantity, join(list(parts))


def _look_at(stretch: Stretch, start: int, block: Tensor, *, quantity: Quantity, terms: Terms) -> float:
    """The norm of a block; numbers nobody can use are refused by the name of the tensor that holds them."""
    try:
        return _examine(stretch.whole.entry.name, block, quantity, terms)
    except Refused:
        for part, piece, _ in stretch.pieces(start, block):
            _examine(part.entry.name, piece, quantity, terms)
        raise


def _bound(code: str, found: float, largest: float) -> None:
    if not found <= largest:
        raise Refused(code, f"the update's {code} is {found:.6g}, the run takes at most {largest:.6g}")


def check_values(state: State, terms: Terms = ANY) -> None:
    """Refuse NaN, infinity, and tensors that are not what they should be."""
    check_rows(into_rows(state, pin([state]))[1], terms)


def check_rows(rows: Iterable[Row], terms: Terms) -> None:
    """The same of an update that is arranged to be written."""
    for row in rows:
        kinds = terms.kinds(row.places)
        if len(kinds) == 1:
            kinds[0].check(row.numbers, terms)
            continue
        pieces = {entry.name: numbers for entry, numbers in row.pieces()}
        for kind in kinds:
            kind.check(join_small([pieces[name] for name in kind.names]), terms)


def find_infinite(values: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with NaN or infinity; None if there is none. Large tensors are looked through in blocks,
    small ones in a copy of all those of a type together.
    """
    alike: dict[object, list[str]] = {}
    for name, value in values.items():
        kind = name if value.numel() >= SMALL else (value.dtype, value.device)
        alike.setdefault(kind, []).append(name)
    for names in alike.values():
        if not _is_finite(join_small([values[name] for name in names])):
            return next(name for name in names if not _is_finite(values[name]))
    return None


def _is_finite(value: Tensor) -> bool:
    return all(_measure(block) is not None for block in _blocks(value))


def _blocks(value: Tensor) -> Iterator[Tensor]:
    numbers = value.detach().reshape(-1)
    for start in range(0, len(numbers), BLOCK):
        yield numbers[start : start + BLOCK]


@dataclass(frozen=True)
class _Alike:
    """Tensors of one type and quantity, looked through as one row."""

    quantity: Quantity
    names: Sequence[str]
    counts: Sequence[int]
    """How many numbers each has."""

    def check(self, numbers: Tensor, terms: Terms) -> None:
        """Refuse numbers nobody can use, by the name of the tensor that holds them."""
        try:
            self._examine(self.names[0], numbers, terms)
        except Refused:
            for name, piece in zip(
                self.names, numbers.reshape(-1).split_with_sizes(list(self.counts)), strict=True
            ):
                self._examine(name, piece, terms)
            raise

    def _examine(self, name: str, numbers: Tensor, terms: Terms) -> None:
        for block in _blocks(numbers):
            _examine(name, block, self.quantity, terms)


def _sort(places: Places, terms: Terms) -> tuple[_Alike, ...]:
    """The tensors of a row by what they are."""
    kinds: dict[Quantity, list[Place]] = {}
    for place in places:
        kinds.setdefault(terms.of(place.entry.name), []).append(place)
    return tuple(
        _Alike(quantity, [place.entry.name for place in alike], [place.count for place in alike])
        for quantity, alike in kinds.items()
    )


def _examine(name: str, block: Tensor, quantity: Quantity, terms: Terms) -> float:
    """Refuse numbers nobody can use; gives the norm of floating-point ones."""
    if block.dtype == torch.bool:
        if int(block.view(torch.uint8).max()) > 1:
            raise Refused("not_finite", f"{name!r} holds a truth value that is neither 0 nor 1")
        return 0.0
    norm = _measure(block) if block.is_floating_point() else 0.0
    if norm is None:
        raise Refused("not_finite", f"{name!r} holds NaN or infinity: the site's training diverged")
    if quantity not in ("value", "number"):
        _hold_to(name, block, quantity, terms)
    return norm


def _hold_to(name: str, block: Tensor, quantity: Quantity, terms: Terms) -> None:
    """Refuse numbers that are not what their tensor is."""
    low, high = (end.item() for end in block.aminmax())
    code = "weight" if name.startswith(f"{WEIGHT}.") else "value"
    if low < 0:
        what = "weight" if code == "weight" else quantity
        raise Refused(code, f"{name!r} holds a negative {what}: {low:g}")
    if quantity == "one" and not low == high == 1:
        raise Refused(code, f"{name!r} is {low if low != 1 else high:g}; expected: 1, as sites count alike")
    if quantity == "mask" and bool(((block != 0) & (block != 1)).any()):
        raise Refused(code, f"{name!r} holds {high:g}; expected: 0 or 1")
    if quantity == "count":
        _hold_to_count(name, block, code, terms)
    if quantity == "weight" and high > terms.largest_weight:
        raise Refused(code, f"{name!r} holds {high:g}; expected: at most {terms.largest_weight:g}")


def _hold_to_count(name: str, block: Tensor, code: str, terms: Terms) -> None:
    high = block.max().item()
    if block.is_floating_point() and bool((block != block.floor()).any()):
        raise Refused(code, f"{name!r} counts samples, and not in whole numbers")
    if high > terms.most:
        declared = terms.declared is not None and terms.most == terms.declared
        whose = (
            "the training samples the site declared when it joined; a site whose data have grown joins anew"
            if declared
            else "the run's --largest-weight"
        )
        raise Refused(code, f"{name!r} counts {high:g} samples; expected: at most {terms.most:g}, {whose}")


def _measure(block: Tensor) -> float | None:
    """The Euclidean norm of some numbers; None if one of them is NaN or infinite."""
    # One pass that is as fast as memory; only a norm that is not finite is worth a closer look.
    norm = float(torch.linalg.vector_norm(block, dtype=torch.promote_types(block.dtype, torch.float32)))
    if isfinite(norm):
        return norm
    low, high = block.aminmax()
    if not (isfinite(low) and isfinite(high)):
        return None
    # Squares overflow long before numbers do.
    return float(torch.linalg.vector_norm(block, dtype=torch.float64))
