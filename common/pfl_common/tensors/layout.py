"""The place of each tensor in a parcel, and reading parts of a parcel without holding the whole.

Everything that walks over a large parcel does so in blocks of `BLOCK` numbers, through one warm buffer that is used
again and again: fresh memory costs more than the arithmetic.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from itertools import accumulate, groupby
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.spec.manifest import WIDTHS, Entry, Manifest
from pfl_common.spec.memo import remembered
from pfl_common.tensors import mapped
from pfl_common.tensors.mapped import BLOCK

if sys.byteorder != "little":
    raise ImportError("parcels are little-endian: this machine's byte order is not supported")

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in WIDTHS}
WIDEST = max(WIDTHS.values())


class Source(Protocol):
    """A parcel's plain bytes, in memory or on disk; reading in order is cheap, any other order is possible."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill the target with the bytes from this place on; there are as many."""


class Filed:
    """A parcel in a file, read in parts: a truncated file raises an error, where a mapping would crash."""

    def __init__(self, file: FileIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self._size

    def read_into(self, offset: int, target: memoryview) -> None:
        """Read a part; what is already in the system's cache is copied once, straight to its place."""
        self._file.seek(offset)
        done = 0
        while done < len(target):
            read = self._file.readinto(target[done:])
            if not read:
                raise EOFError(
                    f"the file ends at byte {offset + done}: {len(target) - done} more were expected"
                )
            done += read


@contextmanager
def open_file(path: Path) -> Iterator[Filed]:
    """A file as a source, open as long as it is needed."""
    with path.open("rb", buffering=0) as file:
        yield Filed(file)


@dataclass(frozen=True)
class Place:
    """The place of one tensor in a parcel, and its type and shape."""

    entry: Entry
    offset: int

    @cached_property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return DTYPES[self.entry.dtype]

    @cached_property
    def count(self) -> int:
        """The number of values."""
        return prod(self.entry.shape)

    @cached_property
    def branch(self) -> str:
        """The first part of its name."""
        return self.entry.name.partition(".")[0]

    @cached_property
    def size(self) -> int:
        """The number of bytes."""
        return self.entry.nbytes


def size_of(manifest: Manifest, groups: Iterable[str]) -> int:
    """Bytes of a parcel with these groups present: known before the first byte is accepted. A group the run does not
    have is refused.
    """
    return _size_of(manifest, _check_groups(manifest, groups))


@remembered
def _size_of(manifest: Manifest, present: frozenset[str]) -> int:
    entries = (entry for entry in manifest if not entry.group or entry.group in present)
    return sum(entry.nbytes for entry in entries)


def lay_out(manifest: Manifest, groups: Iterable[str]) -> dict[str, Place]:
    """Where each tensor lies, by name, in the order of the bytes; a group the run does not have is refused."""
    return _lay_out(manifest, _check_groups(manifest, groups))


@remembered
def _lay_out(manifest: Manifest, present: frozenset[str]) -> dict[str, Place]:
    places, offset = dict[str, Place](), 0
    for entry in manifest:
        if not entry.group or entry.group in present:
            places[entry.name] = place = Place(entry, offset)
            offset += place.size
    return places


def _check_groups(manifest: Manifest, groups: Iterable[str]) -> frozenset[str]:
    # A peer's words: what is worked out from a manifest is kept, and nothing may be kept under such words.
    present, known = frozenset(groups), _groups_of(manifest)
    if unknown := sorted(present - known):
        some = [group[:63] for group in unknown[:5]]
        raise Refused(
            "groups",
            f"{len(unknown)} groups the run does not have, such as {some}; expected: of {sorted(known)}",
        )
    return present


@remembered
def _groups_of(manifest: Manifest) -> frozenset[str]:
    return frozenset(entry.group for entry in manifest if entry.group)


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tensors of one branch and type, read as one vector: a hundred small ones cost as much as one."""

    whole: Place
    parts: tuple[Place, ...]

    @cached_property
    def counts(self) -> list[int]:
        """The number of values of each tensor."""
        return [part.count for part in self.parts]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.counts))

    def pieces(self, start: int, block: Tensor) -> Iterator[tuple[Place, Tensor, int]]:
        """A block of it, which begins at this place, cut where its tensors end: each with its numbers, and the place
        of the first of them in the tensor.
        """
        at = start
        for number in range(bisect_right(self._ends, start), len(self.parts)):
            if at >= start + len(block):
                return
            part, begin = self.parts[number], self._ends[number] - self.parts[number].count
            stop = min(self._ends[number], start + len(block))
            yield part, block[at - start : stop - start], at - begin
            at = stop


def join(parts: Sequence[Place]) -> Stretch:
    """Tensors of one type that lie one after the other, as one."""
    first, count = parts[0], sum(part.count for part in parts)
    whole = Place(Entry(first.entry.name, first.entry.dtype, (count,)), first.offset)
    return Stretch(whole, tuple(parts))


@remembered
def stretches(places: dict[str, Place]) -> tuple[Stretch, ...]:
    """A whole parcel as few long vectors, in order."""
    neighbours = groupby(places.values(), key=lambda place: (place.branch, place.entry.dtype))
    return tuple(join(list(parts)) for _, parts in neighbours)


def fit(size: int, places: dict[str, Place]) -> None:
    """Refuse a parcel that is not exactly as long as its tensors together."""
    last = next(reversed(places.values()), None)
    expected = 0 if last is None else last.offset + last.size
    if size != expected:
        raise Refused("size", f"the parcel has {size} bytes, the manifest says {expected}")


class Window:
    """One reused buffer, through which a tensor's numbers are read block by block."""

    def __init__(self, source: Source, block: int = BLOCK) -> None:
        self._source, self._block = source, block
        self._buffer = torch.empty(block * WIDEST, dtype=torch.uint8)
        self._bytes = self._buffer.numpy().data

    def over(self, source: Source) -> None:
        """Look at another parcel."""
        self._source = source

    def take(self, place: Place, start: int, stop: int) -> Tensor:
        """The numbers from start to stop, good until the next call; no more than a block."""
        size = place.dtype.itemsize
        length = (stop - start) * size
        self._source.read_into(place.offset + start * size, self._bytes[:length])
        return self._buffer[:length].view(place.dtype)

    def blocks(self, place: Place) -> Iterator[tuple[int, Tensor]]:
        """All numbers of a tensor, in order, each block with the place of its first number."""
        for start in range(0, place.count, self._block):
            yield start, self.take(place, start, min(start + self._block, place.count))


def read(source: Source, place: Place) -> Tensor:
    """One whole tensor in memory of its own."""
    tensor = mapped.zeros(place.entry.shape, place.dtype)
    if place.size:
        source.read_into(place.offset, tensor.reshape(-1).view(torch.uint8).numpy().data)
    return tensor
