"""State to bytes and back: raw little-endian numbers in the order of a pinned manifest, and nothing else.

No names, no types, no lengths travel: both ends know them from the run's specification, so nothing a peer
says of itself is ever trusted. The optional groups that are present are listed in the parcel's header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, sqrt
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.spec.run import Entry, Manifest
from pfl_common.tensors import layout
from pfl_common.tensors.fused import pair
from pfl_common.tensors.layout import (
    DTYPES,
    Filed,
    Place,
    Source,
    Stretch,
    Window,
    fit,
    lay_out,
    open_file,
    size_of,
    stretches,
)
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SUM, WEIGHT

__all__ = [
    "DTYPES",
    "Filed",
    "Source",
    "check",
    "check_finite",
    "decode",
    "encode",
    "find_infinite",
    "open_file",
    "pin",
    "read",
    "size_of",
]


SMALL = 1 << 14
"""Numbers of a tensor that is looked through together with others: by itself the call would cost more than the look."""


def pin(samples: Sequence[State]) -> Manifest:
    """The manifest that fits all sample parcels; a branch that some lack becomes an optional group."""
    entries: dict[str, Entry] = {}
    for state in samples:
        for name, value in state.items():
            entry = Entry(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
            if entries.setdefault(name, entry) != entry:
                raise ValueError(f"{name!r} changes between parcels: {entries[name]} and {entry}")
    optional = {name.partition(".")[0] for state in samples for name in entries if name not in state}
    return tuple(_in_group(entries[name], optional) for name in sorted(entries))


def _in_group(entry: Entry, optional: set[str]) -> Entry:
    branch = entry.name.partition(".")[0]
    return Entry(entry.name, entry.dtype, entry.shape, branch if branch in optional else "")


class Sink(Protocol):
    """Where the bytes of a parcel go: a file, or room in memory."""

    def write(self, content: memoryview, /) -> object:
        """Take the next bytes, all of them."""


def encode(state: State, manifest: Manifest, out: Sink) -> tuple[str, ...]:
    """Write a parcel; gives the optional groups it holds. A name too many or too few is an error."""
    groups = tuple(sorted({e.group for e in manifest if e.group and e.name in state}))
    wanted = [e for e in manifest if not e.group or e.group in groups]
    if state.keys() != {e.name for e in wanted}:
        differing = sorted(state.keys() ^ {e.name for e in wanted})
        raise ValueError(f"the parcel does not match its manifest in {differing[:5]}")
    for entry in wanted:
        value = state[entry.name].detach().to("cpu").contiguous()
        if value.dtype is not DTYPES.get(entry.dtype) or value.shape != entry.shape:
            dtype = str(value.dtype).removeprefix("torch.")
            raise ValueError(f"{entry.name!r} is {dtype}{tuple(value.shape)}, manifest says {entry}")
        out.write(value.reshape(-1).view(torch.uint8).numpy().data)
    return groups


def decode(buffer: bytearray | memoryview | np.memmap, manifest: Manifest, groups: Iterable[str]) -> State:
    """Read a parcel; the tensors look into the buffer, so a mapped file is never copied whole."""
    places = lay_out(manifest, groups)
    fit(len(buffer), places)
    return State({name: _view(buffer, place) for name, place in places.items()})


def read(source: Source, manifest: Manifest, groups: Iterable[str], prefix: str) -> State:
    """One branch of a parcel, named without its prefix and in memory of its own; nothing else is read."""
    places, start = lay_out(manifest, groups), prefix + "."
    fit(source.size, places)
    wanted = {name: place for name, place in places.items() if name.startswith(start)}
    return State({name.removeprefix(start): layout.read(source, place) for name, place in wanted.items()})


def check(source: Source, manifest: Manifest, groups: Iterable[str], *, largest: float | None = None) -> None:
    """Refuse an update that does not fit its manifest or would spoil a sum; it is read once, block by block.

    `largest` bounds the Euclidean norm of all values that are summed, as they were sent, without their weights.
    """
    places = lay_out(manifest, groups)
    fit(source.size, places)
    try:
        pair(places)
    except (TypeError, ValueError) as error:
        raise Refused("manifest", str(error)) from None
    window, square = Window(source), 0.0
    for stretch in stretches(places):
        norms = _look_through(window, stretch)
        square += sum(norm * norm for norm in norms) if stretch.whole.branch == SUM else 0.0
    if largest is not None and not sqrt(square) <= largest:
        raise Refused("norm", f"the update's norm is {sqrt(square):.6g}, the run takes at most {largest:.6g}")


def _look_through(window: Window, stretch: Stretch) -> list[float]:
    """The norms of its blocks; numbers nobody can use are refused by the name of the tensor that holds them."""
    try:
        return [_examine(stretch.whole.entry.name, block) for block in window.blocks(stretch.whole)]
    except Refused:
        for part in stretch.parts:
            for block in window.blocks(part):
                _examine(part.entry.name, block)
        raise


def check_finite(state: State) -> None:
    """Refuse NaN, infinity, negative weights and truth values that are neither 0 nor 1."""
    for names, values in _gathered(state):
        try:
            _examine_all(names[0], values)
        except Refused:
            for name in names:
                _examine_all(name, state[name])
            raise


def find_infinite(values: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with NaN or infinity; None if there is none. Large tensors are looked through in blocks,
    small ones in a copy of all those of a type and branch together.
    """
    for names, gathered in _gathered(values):
        if not _is_finite(gathered):
            return next(name for name in names if not _is_finite(values[name]))
    return None


def _examine_all(name: str, value: Tensor) -> None:
    for block in _blocks(value):
        _examine(name, block)


def _is_finite(value: Tensor) -> bool:
    return all(_measure(block) is not None for block in _blocks(value))


def _gathered(values: Mapping[str, Tensor]) -> Iterator[tuple[list[str], Tensor]]:
    """Tensors to be looked through; small ones of a type and branch together, as one copy of them."""
    small: dict[object, list[str]] = {}
    for name, value in values.items():
        if value.numel() >= SMALL:
            yield [name], value
        else:
            small.setdefault((value.dtype, value.device, name.partition(".")[0]), []).append(name)
    for names in small.values():
        yield names, torch.cat([values[name].detach().reshape(-1) for name in names])


def _blocks(value: Tensor) -> Iterator[Tensor]:
    numbers = value.detach().reshape(-1)
    for start in range(0, len(numbers), BLOCK):
        yield numbers[start : start + BLOCK]


def _examine(name: str, block: Tensor) -> float:
    """Refuse numbers nobody can use; gives the norm of floating-point ones."""
    if block.dtype == torch.bool:
        if int(block.view(torch.uint8).max()) > 1:
            raise Refused("not_finite", f"{name!r} holds a truth value that is neither 0 nor 1")
        return 0.0
    norm = _measure(block) if block.is_floating_point() else 0.0
    if norm is None:
        raise Refused("not_finite", f"{name!r} holds NaN or infinity: the site's training diverged")
    if name.startswith(f"{WEIGHT}.") and bool(block.min() < 0):
        raise Refused("weight", f"{name!r} holds a negative weight")
    return norm


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


def _view(buffer: bytearray | memoryview | np.memmap, place: Place) -> Tensor:
    if not place.count:
        return torch.zeros(place.entry.shape, dtype=place.dtype)
    raw = torch.frombuffer(buffer, dtype=torch.uint8, count=place.size, offset=place.offset)
    # A tensor must start at a multiple of its item size; a parcel packs without gaps, so a few need a copy.
    aligned = raw if raw.data_ptr() % place.dtype.itemsize == 0 else raw.clone()
    return aligned.view(place.dtype).reshape(place.entry.shape)
