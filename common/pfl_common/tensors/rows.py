"""A parcel as few long rows, in order: its small neighbours are joined once, then looked through and written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from pfl_common.spec.encoded_form import PLAIN, read_form
from pfl_common.spec.manifest import Entry, Manifest
from pfl_common.spec.memo import remembered
from pfl_common.tensors.layout import DTYPES, Place, lay_out, stretches
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.small_tensors import SMALL, join
from pfl_common.tensors.state import State

Places = tuple[Place, ...]


@dataclass(frozen=True)
class Row:
    """Neighbours of one type, their numbers one after the other. They may lie in a tensor's own memory: a row is read
    before anything else is done with that.
    """

    places: Places
    numbers: Tensor

    def pieces(self) -> Iterator[tuple[Entry, Tensor]]:
        """Each tensor's numbers, in a row of their own."""
        pieces = self.numbers.split_with_sizes([place.count for place in self.places])
        return zip((place.entry for place in self.places), pieces, strict=True)


def into_rows(state: State, manifest: Manifest) -> tuple[tuple[str, ...], list[Row]]:
    """The optional groups that a parcel of these tensors holds, and its rows. A name too many or too few is an error,
    as is a tensor that is not what the manifest says.
    """
    groups = find_groups(state, manifest)
    places = lay_out(manifest, groups)
    if state.keys() != places.keys():
        differing = sorted(state.keys() ^ places.keys())
        raise ValueError(f"the parcel does not match its manifest in {differing[:5]}")
    return groups, [_take(state, part) for part in _parts(places)]


def find_groups(state: State, manifest: Manifest) -> tuple[str, ...]:
    """The optional groups that a parcel of these tensors holds."""
    return tuple(sorted({e.group for e in _optional(manifest) if e.name in state}))


def _take(state: State, part: Places) -> Row:
    dtype = DTYPES.get(_plain_dtype(part[0].entry))
    values = [state[place.entry.name] for place in part]
    for place, value in zip(part, values, strict=True):
        if value.dtype is not dtype or value.shape != place.entry.shape:
            seen = str(value.dtype).removeprefix("torch.")
            raise ValueError(
                f"{place.entry.name!r} is {seen}{tuple(value.shape)}, manifest says {place.entry}"
            )
    return Row(part, join(values))


def _plain_dtype(entry: Entry) -> str:
    """The type of a tensor's numbers before they are encoded."""
    return entry.dtype if read_form(entry.dtype) is None else PLAIN


@remembered
def _optional(manifest: Manifest) -> tuple[Entry, ...]:
    return tuple(entry for entry in manifest if entry.group)


@remembered
def _parts(places: dict[str, Place]) -> tuple[Places, ...]:
    return tuple(part for stretch in stretches(places) for part in _cut(stretch.parts))


def _cut(neighbours: Sequence[Place]) -> Iterator[Places]:
    """Small ones together, no more than a block at a time; large ones alone, as they are not copied."""
    part, held = list[Place](), 0
    for place in neighbours:
        if part and (place.count >= SMALL or held > BLOCK):
            yield tuple(part)
            part, held = [], 0
        part.append(place)
        held += place.count
        if place.count >= SMALL:
            yield tuple(part)
            part, held = [], 0
    if part:
        yield tuple(part)
