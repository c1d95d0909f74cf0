"""Samples on the site's own disk in the form its run takes, mapped into memory and never all in it.

A slab is a file of rows of one shape and an index beside it. Its name is the digest of its recipe: all that decides
what a row is. Slabs are private, hold no file names, and take no more room together than the site allows; those that a
run does not need are removed when it is opened, and all of them when it is over.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias  # Any: rows have the type that the site's data have

import numpy as np
import numpy.typing as npt

from pfl_common.errors import DataError, StateError
from pfl_common.files import atomic, private
from pfl_common.files.full import is_full
from pfl_common.files.write_all import write_at

FORMAT = 1
"""Of slabs: those of another release are made anew."""
COPIED_BYTES = 8 << 20
"""At a time, from one slab to the next."""

Rows: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Layout:
    """The form of one row."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Index:
    """The contents of a slab."""

    count: int = 0
    keys: tuple[str, ...] = ()
    """The digest of what each row was made from; none where all rows come from one file."""
    stamps: Mapping[str, str] = field(default_factory=dict)
    """Digests by a file's place on the disk and times, so that a file that nobody touched is not read again."""


class DiskCache:
    """The slabs of one site."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = private.make_folder(folder), limit
        self._used: set[str] = set()
        for torn in folder.glob("*.part"):
            atomic.remove(torn)

    def name(self, recipe: Mapping[str, object]) -> str:
        """The name of a recipe's slab."""
        text = json.dumps({"format": FORMAT, **recipe}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def find(self, name: str, layout: Layout) -> Index:
        """The index of a slab; an empty one if there is no such slab, or not all of it."""
        self._used.add(name)
        try:
            read = json.loads(self._index(name).read_bytes())
            index = Index(read["count"], tuple(read["keys"]), read["stamps"])
            whole = self._rows(name).stat().st_size >= index.count * layout.nbytes
        except (OSError, ValueError, KeyError, TypeError):
            return Index()
        return index if whole else Index()

    def map(self, name: str, layout: Layout, count: int) -> Rows:
        """The first rows of a slab, mapped: what is read of it is memory that the system takes back when it must."""
        if not count:
            return np.empty((0, *layout.shape), layout.dtype)
        # Shared: a private mapping would count as memory of this process, whole.
        return np.memmap(self._rows(name), layout.dtype, mode="r+", shape=(count, *layout.shape))

    @contextmanager
    def writing(self, name: str, layout: Layout, most: int) -> Iterator[Writer]:
        """Write a slab of at most so many rows; it takes the place of the one of its name when it is whole."""
        self._make_room(name, most * layout.nbytes)
        part = self._folder / f"{name}.part"
        try:
            with _open_new(part) as file:
                writer = Writer(file.fileno(), layout, most)
                yield writer
                writer.close()
            # The index of what was there first: never does one name rows that are others by now.
            atomic.remove(self._index(name))
            atomic.place(part, self._rows(name))
        except OSError as error:
            if not is_full(error):
                raise
            raise _disk_is_full(self._folder) from None
        finally:
            atomic.remove(part)

    def note(self, name: str, index: Index) -> None:
        """Write a slab's index, which makes it valid."""
        text = json.dumps({"count": index.count, "keys": index.keys, "stamps": dict(index.stamps)})
        draft = self._folder / f"{name}.json.part"
        with _open_new(draft) as file:
            file.write(text.encode())
        atomic.place(draft, self._index(name))

    def drop_others(self) -> None:
        """Remove the slabs that were not asked for since this object was made: nobody needs them any more."""
        for path in [*self._folder.glob("*.rows"), *self._folder.glob("*.json")]:
            if path.stem not in self._used:
                atomic.remove(path)

    def _make_room(self, name: str, need: int) -> None:
        if need > self._limit:
            raise DataError(
                f"the samples take {_spell(need)} in the run's size, and the site's cache may take "
                f"{_spell(self._limit)}",
                expected="room for all of them",
                advice="name a larger --cache-limit, or 0 to hold all samples in memory; or ask for a run with a "
                "smaller --image-size",
            )
        if self._taken() + need > self._limit:
            self.drop_others()
        if self._taken() + need > self._limit:
            # The last one of this name: its rows are made anew rather than taken over.
            atomic.remove(self._index(name))
            atomic.remove(self._rows(name))
        if (taken := self._taken()) + need > self._limit:
            raise DataError(
                f"the run's samples take {_spell(taken + need)} in all their forms, and the site's cache may take "
                f"{_spell(self._limit)}",
                expected="room for all of them",
                advice="name a larger --cache-limit, or 0 to hold all samples in memory",
            )

    def _taken(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.rows"))

    def _rows(self, name: str) -> Path:
        return self._folder / f"{name}.rows"

    def _index(self, name: str) -> Path:
        return self._folder / f"{name}.json"


class Writer:
    """Appends rows to a slab."""

    def __init__(self, handle: int, layout: Layout, most: int) -> None:
        self._handle, self._layout, self.count = handle, layout, 0
        if hasattr(os, "posix_fallocate") and most * layout.nbytes:
            # Now rather than in the middle, after an hour of decoding.
            os.posix_fallocate(handle, 0, most * layout.nbytes)

    def write(self, rows: Rows) -> None:
        """Add rows, by blocks if they are many."""
        step = max(1, COPIED_BYTES // max(1, self._layout.nbytes))
        for start in range(0, len(rows), step):
            block = np.ascontiguousarray(rows[start : start + step], self._layout.dtype)
            content = block.reshape(-1).view(np.uint8).data
            write_at(self._handle, content, self.count * self._layout.nbytes)
            self.count += len(block)

    def close(self) -> None:
        """Make what was written lasting, and nothing else."""
        os.ftruncate(self._handle, self.count * self._layout.nbytes)
        os.fsync(self._handle)


def make_rows(
    cache: DiskCache,
    recipe: Mapping[str, object],
    layout: Layout,
    count: int,
    blocks: Callable[[], Iterator[Rows]],
) -> Rows:
    """The rows of a recipe that names all they come from: mapped if they are there, else written block by block."""
    name = cache.name({**recipe, "shape": layout.shape, "dtype": layout.dtype})
    if cache.find(name, layout).count != count:
        with cache.writing(name, layout, count) as writer:
            for block in blocks():
                writer.write(block)
        cache.note(name, Index(writer.count))
    return cache.map(name, layout, count)


@contextmanager
def _open_new(path: Path) -> Iterator[Any]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, private.FILE_MODE)
    with os.fdopen(handle, "wb", buffering=0) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _spell(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"


def _disk_is_full(folder: Path) -> StateError:
    return StateError(
        "the disk of the site's cache has no room for its samples",
        expected="room for all samples in the run's size",
        advice=f"make room on the disk of {folder}, or hold the samples in memory with --cache-limit 0",
    )
