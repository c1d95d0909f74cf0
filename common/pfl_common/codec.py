"""State to bytes and back: raw little-endian numbers in the order of a pinned manifest, and nothing else.

No names, no types, no lengths travel: both ends know them from the run's specification, so nothing a peer
says of itself is ever trusted. The optional groups that are present are listed in the parcel's header.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import prod
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.halves import Up
from pfl_common.run import Entry, Manifest
from pfl_common.sums import Weighted
from pfl_common.tensors import State

if sys.byteorder != "little":
    raise ImportError("parcels are little-endian: this machine's byte order is not supported")

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    )
}


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


def size_of(manifest: Manifest, groups: Iterable[str]) -> int:
    """Bytes of a parcel with these groups present: known before the first byte is accepted."""
    present = set(groups)
    return sum(_bytes(entry) for entry in manifest if not entry.group or entry.group in present)


def encode(state: State, manifest: Manifest, out: BinaryIO) -> tuple[str, ...]:
    """Write a parcel; gives the optional groups it holds. A name too many or too few is an error."""
    groups = tuple(sorted({e.group for e in manifest if e.group and e.name in state}))
    wanted = [e for e in manifest if not e.group or e.group in groups]
    if state.keys() != {e.name for e in wanted}:
        differing = sorted(state.keys() ^ {e.name for e in wanted})
        raise ValueError(f"the parcel does not match its manifest in {differing[:5]}")
    for entry in wanted:
        value = state[entry.name].detach().to("cpu").contiguous()
        if (_dtype_name(value), tuple(value.shape)) != (entry.dtype, entry.shape):
            raise ValueError(
                f"{entry.name!r} is {_dtype_name(value)}{tuple(value.shape)}, manifest says {entry}"
            )
        out.write(value.reshape(-1).view(torch.uint8).numpy().data)
    return groups


def decode(buffer: bytearray | memoryview | np.memmap, manifest: Manifest, groups: Iterable[str]) -> State:
    """Read a parcel; the tensors look into the buffer, so a mapped file is never copied whole."""
    present = set(groups)
    unknown = present - {e.group for e in manifest if e.group}
    if unknown:
        raise Refused("groups", f"the header lists groups the run does not have: {sorted(unknown)}")
    if len(buffer) != size_of(manifest, present):
        raise Refused(
            "size", f"the parcel has {len(buffer)} bytes, the manifest says {size_of(manifest, present)}"
        )
    tensors, offset = {}, 0
    for entry in manifest:
        if not entry.group or entry.group in present:
            tensors[entry.name] = _view(buffer, entry, offset)
            offset += _bytes(entry)
    return State(tensors)


def flatten(up: Up) -> State:
    """An update as one State: `sum.`, `weight.` and `show.` before each name."""
    values = State({name: term.value for name, term in up.summed.items()})
    weights = State({name: term.weight for name, term in up.summed.items()})
    return values.within("sum") | weights.within("weight") | up.shown.within("show")


def unflatten(state: State) -> Up:
    """The reverse of `flatten`."""
    values, weights = state.under("sum"), state.under("weight")
    return Up({name: Weighted(value, weights[name]) for name, value in values.items()}, state.under("show"))


def check_finite(state: State) -> None:
    """Refuse NaN, infinity, negative weights and truth values that are neither 0 nor 1."""
    for name, value in state.items():
        if not value.numel():
            continue
        if value.dtype == torch.bool:
            if int(value.view(torch.uint8).max()) > 1:
                raise Refused("not_finite", f"{name!r} holds a truth value that is neither 0 nor 1")
            continue
        # The extremes of a tensor with a NaN are NaN; unlike isfinite they need no memory of its size.
        low, high = value.aminmax()
        if not bool(torch.isfinite(low)) or not bool(torch.isfinite(high)):
            raise Refused("not_finite", f"{name!r} holds NaN or infinity: the site's training diverged")
        if name.startswith("weight.") and bool(low < 0):
            raise Refused("weight", f"{name!r} holds a negative weight")


def _view(buffer: bytearray | memoryview | np.memmap, entry: Entry, offset: int) -> Tensor:
    count = prod(entry.shape)
    if not count:
        return torch.zeros(entry.shape, dtype=DTYPES[entry.dtype])
    dtype = DTYPES[entry.dtype]
    raw = torch.frombuffer(buffer, dtype=torch.uint8, count=_bytes(entry), offset=offset)
    # A tensor must start at a multiple of its item size; a parcel packs without gaps, so a few need a copy.
    aligned = raw if raw.data_ptr() % dtype.itemsize == 0 else raw.clone()
    return aligned.view(dtype).reshape(entry.shape)


def _bytes(entry: Entry) -> int:
    return prod(entry.shape) * DTYPES[entry.dtype].itemsize


def _dtype_name(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
