"""Keeps large files that are no longer needed, to overwrite them: fresh pages on a disk cost five times as much.

A blank's content means nothing, and its length does not tell how far a writer has come: the writer keeps that
elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from bisect import bisect_left, insort
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

WORTH = 1 << 14
"""A smaller file costs no more to make than to keep. A new file is a place among those that were there lately, which
ext4 looks for: a tenth of a millisecond, where thousands come and go.
"""


def throw_away(folders: Iterable[Path]) -> None:
    """Remove the folders of processes that have ended: nobody counts what lies there any more."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


class Blanks:
    """A folder of such files, limited in bytes, for all threads of one process."""

    def __init__(self, folder: Path, *, most: int) -> None:
        self._folder, self._most = folder, most
        self._held: list[tuple[int, Path]] = []
        """By size. The lock is held while a name changes, never while pages go: nobody waits for those."""
        self._number = 0
        self._lock = Lock()
        throw_away([folder])

    def give(self, file: Path, size: int | None = None) -> bool:
        """Take a file in (of this size, where that is known), whose name is free then. False if it is too small, if
        there are enough, or if a full disk has no room for one name more: the caller removes it, and that always works.
        """
        with self._lock, suppress(OSError):
            size = file.stat().st_size if size is None else size
            if size >= WORTH and sum(held for held, _ in self._held) + size <= self._most:
                if not self._held:
                    self._folder.mkdir(exist_ok=True, mode=0o700)
                self._number += 1
                blank = self._folder / f"{self._number}"
                os.replace(file, blank)
                insort(self._held, (size, blank))
                return True
        return False

    def give_unread(self, file: Path) -> bool:
        """The same for a file that somebody may have open, and then reads as it is: such a one is not taken in."""
        return file.stat().st_size >= WORTH and not _is_open(file) and self.give(file)

    def has_one_for(self, size: int) -> bool:
        """Whether a file of `size` bytes is large enough to reuse a blank, and there is one."""
        return size >= WORTH and bool(self._held)

    def lay(self, into: Path, size: int) -> bool:
        """Put a blank of at most `size` bytes where a file of that size will be written. Shortening a long one takes
        time.
        """
        found = self._take(size)
        if found is None:
            return False
        held, blank = found
        try:
            if held > size:
                os.truncate(blank, size)
            os.replace(blank, into)
        except OSError:  # somebody has cleaned up by hand, or the disk is full: then a file is made anew
            _remove(blank)
            return False
        return True

    def clear(self) -> int:
        """Remove all blanks, which takes time; gives the bytes freed."""
        with self._lock:
            held, self._held = self._held, []
        freed = sum(size for size, blank in held if _remove(blank))
        with suppress(OSError):
            self._folder.rmdir()
        return freed

    def _take(self, size: int) -> tuple[int, Path] | None:
        """The smallest that is long enough, else the longest."""
        with self._lock:
            if not self.has_one_for(size):
                return None
            long_enough = bisect_left(self._held, size, key=lambda found: found[0])
            return self._held.pop(min(long_enough, len(self._held) - 1))


def _is_open(file: Path) -> bool:
    """Whether anybody has a file open; where the system does not tell, somebody may."""
    handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        # A write lease is given on what nobody else has open.
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (AttributeError, OSError):
        return True
    finally:
        os.close(handle)
    return False


def _remove(blank: Path) -> bool:
    with suppress(OSError):
        blank.unlink()
        return True
    return False
