"""All writes by which state changes on disk, in one place so that a test can break each of them.

"Lasting" means that it is still so after a power loss.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from pfl_common.files.write_all import write_at


def make_folder(folder: Path) -> None:
    """Make a private folder, lastingly, with those above it that are not there yet."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        settle(folder.parent)


def fill(path: Path, content: bytes) -> None:
    """Write a file, lastingly; the file's name lasts only after `settle` on its folder."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make what another process wrote into a file lasting."""
    _sync(path, os.O_RDONLY)


def settle(folder: Path) -> None:
    """Make a folder's entries lasting: those added and those removed."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def move(source: Path, target: Path) -> None:
    """Put a file in another's place, at once: nobody ever sees half of it."""
    os.replace(source, target)


def place(source: Path, target: Path) -> None:
    """Put a file or a folder in another's place, at once and lastingly; both names are in one folder."""
    move(source, target)
    settle(target.parent)


def write(path: Path, text: str) -> None:
    """Put a small file in its place: after a power loss the old one is there or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    fill(draft, text.encode())
    place(draft, path)


def write_over(path: Path, text: bytes) -> None:
    """Write a small file of text over the one that is there, whole for whoever comes after a kill; what a power cut
    leaves is any of it. Spaces fill it up to the length of the one before. A file that is put in another's place, or
    emptied first, is written to the disk at once by some file systems, which takes many times as long.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        write_at(handle, text.ljust(os.fstat(handle).st_size), 0)
    finally:
        os.close(handle)


def append(path: Path, line: bytes, *, mode: int = 0o666) -> None:
    """Add a line to a file, or several, whole or not at all: half of one would spoil the next."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "ab", buffering=0) as book:
        end = book.tell()
        if book.write(line) < len(line):
            book.truncate(end)
            raise OSError(errno.ENOSPC, "no room for a whole line")


def remove(path: Path) -> None:
    """Take a file away; one that is already gone is no error."""
    path.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
