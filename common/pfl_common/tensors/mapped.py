"""Memory for large tensors: a mapped file instead of anonymous memory, or huge pages, which are quick to get.

A mapped tensor is like any other. Its pages come from the file and go back to it when memory is short; what is
written to it stays in this process. Its file has no name any more and is gone with the last tensor that lies in it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from math import prod
from pathlib import Path
from typing import BinaryIO, Protocol
from weakref import finalize

import torch
from torch import Tensor

from pfl_common.files.write_all import write_at
from pfl_common.tensors.state import State

BLOCK = 1 << 18
"""Numbers taken at a time, wherever there are many: a block stays in the cache, a whole model does not."""

LARGE = 16 << 20
"""Results of more bytes than this lie in a file: a page of it costs no more than a fresh one of memory."""

REUSED = 64 << 20
"""A file of up to so many bytes in which no tensor lies any more is kept, one in a process, and written over by the
next draft: fresh pages cost twice as much.
"""

PAGE = 2 << 20
"""A huge page: from so many bytes on, memory is asked for in such pages, which takes a fifth of the time."""

_ALIGNED = 64

_spare: dict[Path | None, int] = {}
"""That file, by the folder on whose disk it lies."""
_folder: ContextVar[Path | None] = ContextVar("folder of mapped tensors", default=None)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """While open, large results lie on this folder's disk. The system's own temporary folder may be memory."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


class Draft(Protocol):
    """Tensors being written, block by block."""

    def put(self, name: str, start: int, block: Tensor) -> None:
        """Write numbers from this place of a tensor on."""

    def tensors(self) -> dict[str, Tensor]:
        """All of them, once they are written."""


@contextmanager
def draft(like: Mapping[str, Tensor]) -> Iterator[Draft]:
    """Room for tensors of these names, shapes and types: in memory, or in a file when there is much of it."""
    with ExitStack() as stack:
        if sum(tensor.nbytes for tensor in like.values()) <= LARGE:
            yield _InMemory(like)
        else:
            folder = _folder.get()
            yield _InFile(like, stack.enter_context(_find_file(folder)), folder)


def put_away(state: State) -> State:
    """The same values; if there is much of it, in a file instead of memory."""
    if sum(tensor.nbytes for tensor in state.values()) <= LARGE:
        return state
    with draft(state) as room:
        for name, tensor in state.items():
            flat = tensor.detach().reshape(-1)
            for start in range(0, len(flat), BLOCK):
                room.put(name, start, flat[start : start + BLOCK])
        return State(room.tensors(), kept=state.kept)


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros, in huge pages where that is worth it and the system has them."""
    size = prod(shape) * dtype.itemsize
    if size < PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype)
    # A page more than needed, so that the tensor can start where a huge page does.
    memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        # A kernel without them: pages of the usual size do as well, only slower.
        return torch.zeros(shape, dtype=dtype)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    offset = -whole.data_ptr() % PAGE
    return whole[offset : offset + size].view(dtype).view(shape)


def _find_file(folder: Path | None) -> BinaryIO:
    """A file without a name on this folder's disk: one that was a draft before, or a new one."""
    spare = _spare.pop(folder, None)
    if spare is None:
        return tempfile.TemporaryFile(dir=folder, buffering=0)
    return os.fdopen(spare, "w+b", buffering=0)


def _set_aside(folder: Path | None, file: int) -> None:
    """No tensor lies in a file any more."""
    while _spare:
        os.close(_spare.popitem()[1])
    _spare[folder] = file


class _InMemory:
    """A draft in memory."""

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        self._tensors = {name: zeros(tuple(tensor.shape), tensor.dtype) for name, tensor in like.items()}

    def put(self, name: str, start: int, block: Tensor) -> None:
        self._tensors[name].view(-1)[start : start + len(block)].copy_(block)

    def tensors(self) -> dict[str, Tensor]:
        return self._tensors


class _InFile:
    """A draft in a file without a name, mapped once it is written."""

    def __init__(self, like: Mapping[str, Tensor], file: BinaryIO, folder: Path | None) -> None:
        self._like, self._file, self._folder = like, file, folder
        self._offsets, self._size = dict[str, int](), 0
        for name, tensor in like.items():
            self._offsets[name] = self._size
            self._size += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        self._warm: dict[torch.dtype, Tensor] = {}

    def put(self, name: str, start: int, block: Tensor) -> None:
        dtype = self._like[name].dtype
        warm = self._warm.setdefault(dtype, torch.empty(BLOCK, dtype=dtype))[: len(block)]
        content, place = warm.copy_(block).view(torch.uint8).numpy().data, start * dtype.itemsize
        write_at(self._file.fileno(), content, self._offsets[name] + place)

    def tensors(self) -> dict[str, Tensor]:
        # The last tensor may be followed by less than its rounded size, and a mapping ends with its file.
        os.ftruncate(self._file.fileno(), self._size)
        memory = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_COPY)
        if self._size <= REUSED:
            finalize(memory, _set_aside, self._folder, os.dup(self._file.fileno())).atexit = False
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        return {
            name: whole[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for (name, offset), tensor in zip(self._offsets.items(), self._like.values(), strict=True)
        }
