"""What all commands have in common at their outer edge: an error a person can mend is words and an exit code."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from pfl_common.errors import PflError

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


def run(program: str, command: Callable[[], None]) -> None:
    """Run a command; what it raises on purpose is printed without a traceback."""
    # What gRPC prints on its own says nothing our log does not. It reads this when it is first imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    keep_frames_warm()
    try:
        command()
    except PflError as error:
        # Loaded for words that are hardly ever said: it weighs megabytes in a daemon that runs for months.
        from rich.console import Console

        Console(stderr=True, highlight=False, soft_wrap=True).print(f"{program}: {error}", markup=False)
        raise SystemExit(getattr(error, "exit_code", 1)) from None
