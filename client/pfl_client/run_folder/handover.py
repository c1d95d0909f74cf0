"""Where daemon and trainer hand each other parcels too large for a message: memory that both see, or a file.

Memory has a path like a file and is written and mapped like one, but costs no disk: its pages are never written out,
and it is gone with this process, however that ends. Parcels beyond a size stay files, whose pages a machine that is
short of memory can get back. Torch-free.

Who fills it has it mapped from one parcel to the next: written like a file, each of its small pages is looked for
anew, which takes as long as copying it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from pfl_client.trainer_process.large_parcels import goes_as_file
from pfl_common.files import atomic

SHARED_LIMIT = 64 << 20
"""A larger parcel is a file: a site would hold both its ways in memory that nobody can take back."""


class Handover:
    """One place, used again for each parcel that goes the same way."""

    def __init__(self, file: Path) -> None:
        """`file` is where it lies if it is no memory."""
        self._file, self._memory = file, -1
        self._mapped: mmap.mmap | None = None
        atomic.remove(file)

    def place(self, size: int) -> Path:
        """Where a parcel of at most so many bytes is written, over the last one."""
        if not _is_shared(size):
            return self._file
        if self._memory < 0:
            self._memory = os.memfd_create(self._file.name, os.MFD_CLOEXEC)
        # Both processes are one user's: the trainer may open what this one has open.
        return Path(f"/proc/{os.getpid()}/fd/{self._memory}")

    def memory(self, size: int) -> memoryview | None:
        """The place of a parcel of just so many bytes, to be written where it lies; None if that is a file."""
        if not _is_shared(size):
            return None
        self.place(size)
        # Also where it is mapped already: beyond its end there would be no memory.
        if os.fstat(self._memory).st_size != size:
            os.ftruncate(self._memory, size)
        if self._mapped is None or len(self._mapped) != size:
            self._mapped = mmap.mmap(self._memory, size)
        return memoryview(self._mapped)

    def lacking(self, size: int) -> int:
        """The room on the disk that a parcel of so many bytes still needs."""
        if not goes_as_file(size) or _is_shared(size):
            return 0
        return max(0, size - (self._file.stat().st_size if self._file.exists() else 0))

    def let_go(self, *, beyond: int = -1) -> bool:
        """Give room and memory back, each if it is more than so many bytes; whether there was any."""
        freed = False
        if self._memory >= 0 and os.fstat(self._memory).st_size > beyond:
            os.close(self._memory)
            self._memory, self._mapped, freed = -1, None, True
        if self._file.exists() and self._file.stat().st_size > beyond:
            self._file.unlink()
            freed = True
        return freed


def _is_shared(size: int) -> bool:
    return goes_as_file(size) and size <= SHARED_LIMIT and hasattr(os, "memfd_create")
