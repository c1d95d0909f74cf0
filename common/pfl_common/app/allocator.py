"""What becomes of memory that a process frees: whether it stays for the next use or goes back to the system.

Speaks to glibc's allocator, and leaves any other C library's alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Numbers of glibc's mallopt."""


def keep_frames_warm() -> None:
    """Let memory of a frame's size be used again instead of going back to the system and coming fresh.

    By default each frame of 1 MiB is mapped and unmapped, and its fresh pages cost more than what is done with it.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library has other ways
            libc = ctypes.CDLL(None)
            libc.mallopt(_MMAP_THRESHOLD, 4 << 20)
            libc.mallopt(_TRIM_THRESHOLD, 32 << 20)
            # Each arena keeps what its threads gave back, and frames go through the hands of many threads.
            libc.mallopt(_ARENA_MAX, 2)


def keep_batches_warm() -> None:
    """Let memory of a training step be used again by the next one instead of going back to the system.

    By default much of it goes back after each step and comes fresh, page by page, for the next: up to a fifth of the
    time of a training.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library has other ways
            libc = ctypes.CDLL(None)
            libc.mallopt(_MMAP_THRESHOLD, 32 << 20)  # the largest that is taken
            libc.mallopt(_TRIM_THRESHOLD, 1 << 30)


def let_go_of_free_memory(*, beyond: int = 0) -> None:
    """Give back what was kept warm and nobody uses, if it is more than so many bytes; microseconds where there is
    nothing to give.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            if not beyond or _count_free(libc) > beyond:
                libc.malloc_trim(0)


def read_resident() -> int:
    """Bytes that this process holds in the machine's memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def give_memory_back() -> None:
    """Let memory of large blocks go back to the system as soon as it is free, in a process that must not need much.

    By default what was once taken for blocks of up to 32 MB stays, and what comes later may not fit into its gaps.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library has other ways
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 16)


class _Usage(ctypes.Structure):
    """What glibc's mallinfo2 answers with: ten numbers, of which one is wanted."""

    _fields_ = (("other", ctypes.c_size_t * 8), ("free", ctypes.c_size_t), ("at_the_end", ctypes.c_size_t))


def _count_free(libc: ctypes.CDLL) -> int:
    """The bytes that were freed and not given back; a glibc before 2.33 does not tell: more than any number."""
    if not hasattr(libc, "mallinfo2"):
        return sys.maxsize
    libc.mallinfo2.restype = _Usage
    return int(libc.mallinfo2().free)
