"""Turns a State into bytes and back: raw little-endian numbers in the order of a pinned manifest, and nothing else.

No names, no types, no lengths travel: both ends know them from the run's specification, so nothing a peer
says of itself is ever trusted. The optional groups that are present are listed in the parcel's header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from pfl_common.spec.encoded_form import Form, read_form
from pfl_common.spec.manifest import Entry, Manifest
from pfl_common.tensors import layout
from pfl_common.tensors.encoded import Changes, Sink, read_values, write_values
from pfl_common.tensors.layout import (
    DTYPES,
    Filed,
    Place,
    Source,
    Stretch,
    fit,
    lay_out,
    open_file,
    size_of,
    stretches,
)
from pfl_common.tensors.rows import Row, find_groups, into_rows
from pfl_common.tensors.small_tensors import bytes_of
from pfl_common.tensors.state import State

__all__ = [
    "DTYPES",
    "Filed",
    "Source",
    "decode",
    "encode",
    "find_groups",
    "open_file",
    "read",
    "size_of",
    "write",
]


def encode(state: State, manifest: Manifest, out: Sink, changes: Changes | None = None) -> tuple[str, ...]:
    """Write a parcel; gives the optional groups it holds. A name too many or too few is an error. What crosses as a
    change is written by `changes`.
    """
    groups, rows = into_rows(state, manifest)
    write(rows, out, changes)
    return groups


def write(rows: Iterable[Row], out: Sink, changes: Changes | None = None) -> None:
    """Write a parcel whose tensors were arranged."""
    for row in rows:
        form = read_form(row.places[0].entry.dtype)
        if form is None:
            out.write(bytes_of(row.numbers))
        else:
            for entry, numbers in row.pieces():
                _write(entry, form, numbers.view(entry.shape), out, changes)


def _write(entry: Entry, form: Form, value: Tensor, out: Sink, changes: Changes | None) -> None:
    if not form.is_change:
        write_values(form, value.to("cpu"), out)
    elif changes is None:
        raise ValueError(f"{entry.name!r} crosses as a change, and it is not said from what")
    else:
        changes.write(entry, form, value, out)


def decode(
    buffer: bytearray | memoryview | np.memmap,
    manifest: Manifest,
    groups: Iterable[str],
    base: Mapping[str, Tensor] | None = None,
) -> State:
    """Read a parcel; tensors that cross as they are look into the buffer, so a mapped file is never copied whole.
    `base` is what changes are added to.
    """
    places = lay_out(manifest, groups)
    fit(len(buffer), places)
    return State(
        {name: value for stretch in stretches(places) for name, value in _views(buffer, stretch, base or {})}
    )


def read(source: Source, manifest: Manifest, groups: Iterable[str], prefix: str) -> State:
    """One branch of a parcel, named without its prefix and in memory of its own; nothing else is read."""
    places, start = lay_out(manifest, groups), prefix + "."
    fit(source.size, places)
    wanted = {name: place for name, place in places.items() if name.startswith(start)}
    return State({name.removeprefix(start): layout.read(source, place) for name, place in wanted.items()})


def _views(
    buffer: bytearray | memoryview | np.memmap, stretch: Stretch, base: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Neighbours of one type are looked at as one vector, which is then cut."""
    entries = [part.entry for part in stretch.parts]
    if len(entries) == 1 or not stretch.whole.count or read_form(stretch.whole.entry.dtype) is not None:
        return ((part.entry.name, _view(buffer, part, base.get(part.entry.name))) for part in stretch.parts)
    pieces = _view(buffer, stretch.whole, None).split_with_sizes(stretch.counts)
    return (
        (entry.name, piece if len(entry.shape) == 1 else piece.view(entry.shape))
        for entry, piece in zip(entries, pieces, strict=True)
    )


def _view(buffer: bytearray | memoryview | np.memmap, place: Place, base: Tensor | None) -> Tensor:
    if not place.count:
        return torch.zeros(place.entry.shape, dtype=place.dtype)
    raw = torch.frombuffer(buffer, dtype=torch.uint8, count=place.size, offset=place.offset)
    if (form := read_form(place.entry.dtype)) is not None:
        if form.is_change and base is None:
            raise ValueError(f"{place.entry.name!r} crosses as a change, and it is not said of what")
        return read_values(form, raw, place.entry, base if form.is_change else None)
    # A tensor must start at a multiple of its item size; a parcel packs without gaps, so a few need a copy.
    aligned = raw if raw.data_ptr() % place.dtype.itemsize == 0 else raw.clone()
    return aligned.view(place.dtype).reshape(place.entry.shape)
