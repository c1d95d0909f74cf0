"""The lock on the folder of a site, or of its run: one daemon at a time."""

from __future__ import annotations

import os
from pathlib import Path

from pfl_common.errors import StateError
from pfl_common.files import atomic, locks


class FolderLock:
    """An exclusive lock on a state folder: a second daemon is refused, and a killed one leaves no lock behind."""

    def __init__(self, folder: Path, name: str, *, advice: str = "stop the other one") -> None:
        atomic.make_folder(folder)
        handle = locks.take(folder / name)
        if handle is None:
            raise StateError(
                f"the state folder {folder} is in use by another pfl-client",
                expected="one daemon per site and state folder",
                advice=advice,
            )
        self._handle = handle

    def release(self) -> None:
        """Let others have it."""
        os.close(self._handle)
