"""Where daemon and trainer hand each other parcels too large for a message: memory that both see, or a file.

Memory has a path like a file and is written and mapped like one, but costs no disk: its pages are never written out,
and it is gone with this process, however that ends. Parcels beyond a size stay files, whose pages a machine that is
short of memory can get back. Torch-free.
"""

from __future__ import annotations

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
        atomic.remove(file)

    def place(self, size: int) -> Path:
        """Where a parcel of at most so many bytes is written, over the last one."""
        if not _is_shared(size):
            return self._file
        if self._memory < 0:
            self._memory = os.memfd_create(self._file.name, os.MFD_CLOEXEC)
        # Both processes are one user's: the trainer may open what this one has open.
        return Path(f"/proc/{os.getpid()}/fd/{self._memory}")

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
            self._memory, freed = -1, True
        if self._file.exists() and self._file.stat().st_size > beyond:
            self._file.unlink()
            freed = True
        return freed


def _is_shared(size: int) -> bool:
    return goes_as_file(size) and size <= SHARED_LIMIT and hasattr(os, "memfd_create")
