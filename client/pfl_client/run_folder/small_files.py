"""The few ways in which a site's state changes on disk; all are here, so that a test can break each of them.

"Lasting" means that it is still so after a power loss.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a private folder, lastingly, with those above it that are not there yet."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        settle(folder.parent)


def write(path: Path, content: bytes) -> None:
    """Fill a file, lastingly; the file's name lasts only after `settle` on its folder."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make what another process wrote into a file lasting."""
    _sync(path, os.O_RDONLY)


def settle(folder: Path) -> None:
    """Make the names in a folder lasting: what was put there, and what was taken away."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def move(source: Path, target: Path) -> None:
    """Put a file in another's place, at once: nobody ever sees half of it."""
    os.replace(source, target)


def remove(path: Path) -> None:
    """Take a file away; one that is already gone is no error."""
    path.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
