"""Reads .npz and .npy files a few rows at a time, so that a file larger than the memory can be predicted.

`numpy.load` reads an array whole; here the rows are taken off the archive's stream one block after the other.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np

from pfl_client.data.array_bounds import check_archive, check_single, unreadable
from pfl_client.data.array_bounds import read_outline as read_outline_of
from pfl_client.data.forms import Column

BLOCK_BYTES = 32 << 20
LARGEST_ROW = 1 << 30
"""Bytes of one sample: a file that claims more is damaged."""


class _Source(Protocol):
    def take(self, rows: int) -> Column:
        """The next rows."""


@dataclass(frozen=True)
class Rows:
    """Rows of a file: samples, and the site's own class numbers if they are there and wanted."""

    first: int
    """The place of the first row, from 1."""
    x: Column
    y: Column | None


def read_rows(path: Path, *, labelled: bool, most: int) -> Iterator[Rows]:
    """The rows of a file in blocks of at most `most` samples, and of about 32 MiB."""
    try:
        with ExitStack() as stack:
            _check(path)
            sources, count, row = _open(path, stack, labelled=labelled)
            step = max(1, min(most, BLOCK_BYTES // max(1, row)))
            for start in range(0, count, step):
                taken = {name: source.take(min(step, count - start)) for name, source in sources.items()}
                yield Rows(start + 1, taken["x"], taken.get("y"))
    except PermissionError:
        raise unreadable("it may not be read: Permission denied") from None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(f"it cannot be read as arrays: {type(error).__name__}") from None


def _check(path: Path) -> None:
    """The sizes that a file claims, in words that do not name it."""
    if path.suffix == ".npy":
        check_single(path)
    else:
        check_archive(path)


def read_outline(path: Path) -> Column:
    """An array of the type and the shape of a file's samples, which takes no memory: each number is 0."""
    with zipfile.ZipFile(path) as archive, archive.open("x.npy") as content:
        x = _Stream.of(content)
    return np.broadcast_to(np.zeros((), x.dtype), (x.count, *x.shape))


def _open(path: Path, stack: ExitStack, *, labelled: bool) -> tuple[dict[str, _Source], int, int]:
    """The sources of x and y, the number of samples, and the bytes of one."""
    if path.suffix == ".npy":
        if labelled:
            raise unreadable("a single array has no labels: x and y in an .npz have")
        members: dict[str, IO[bytes]] = {"x": stack.enter_context(path.open("rb"))}
    else:
        archive = stack.enter_context(zipfile.ZipFile(path))
        wanted = ("x", "y") if labelled else ("x",)
        if missing := [name for name in wanted if f"{name}.npy" not in archive.namelist()]:
            raise unreadable(f"it holds no array {missing[0]!r}")
        members = {name: stack.enter_context(archive.open(f"{name}.npy")) for name in wanted}
    opened = {name: _Stream.of(stream) for name, stream in members.items()}
    x, y = opened["x"], opened.get("y")
    if y is not None and (y.count != x.count or y.dtype.kind not in "iu" or y.shape):
        raise unreadable(f"y is {y.dtype} of {y.count} rows beside {x.count} samples, not a class for each")
    if x.row > LARGEST_ROW:
        raise unreadable(f"a sample would have {x.row} bytes")
    # A column-major array has its rows scattered over the whole file.
    sources: dict[str, _Source] = {name: _Whole(s) if s.turned else s for name, s in opened.items()}
    return sources, x.count, x.row


@dataclass(frozen=True)
class _Stream:
    """An array whose rows follow each other in a stream."""

    stream: IO[bytes]
    count: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    turned: bool

    @classmethod
    def of(cls, stream: IO[bytes]) -> _Stream:
        found = read_outline_of(stream)
        shape = found.shape
        # A pickled object inside would run its writer's code.
        if found.dtype.hasobject or not shape:
            raise unreadable("it holds Python objects or a single number, not rows of numbers")
        return cls(stream, shape[0], shape[1:], found.dtype, found.turned and len(shape) > 1)

    @property
    def row(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def take(self, rows: int) -> Column:
        content = bytearray()
        while len(content) < rows * self.row:
            piece = self.stream.read(rows * self.row - len(content))
            if not piece:
                raise unreadable("it is cut short")
            content += piece
        return cast(Column, np.frombuffer(content, self.dtype).reshape(rows, *self.shape))


class _Whole:
    """An array that has to be read at once."""

    def __init__(self, source: _Stream) -> None:
        flat = source.take(source.count).reshape(-1)
        self._rows = flat.reshape((source.count, *source.shape), order="F")
        self._next = 0

    def take(self, rows: int) -> Column:
        """The next rows."""
        self._next += rows
        return self._rows[self._next - rows : self._next]
