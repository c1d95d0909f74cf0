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
LITTLE = 32 << 20
"""So much may stay with a process that waits for its next task: a tenth of what torch itself takes."""


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


def let_go_of_free_memory() -> None:
    """Give back what was kept warm and nobody uses; microseconds where there is nothing to give."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


class WarmMemory:
    """What tasks have let go of. It goes back to the system unless it is little: a small task would only ask for it
    again, page by page.
    """

    def __init__(self) -> None:
        self._held = 0

    def let_go(self) -> None:
        """A task is done."""
        if read_resident() > self._held + LITTLE:
            let_go_of_free_memory()
            self._held = read_resident()


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
