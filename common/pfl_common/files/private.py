"""Files that only one user may read: written whole or not at all, refused if others could read them."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pfl_common.errors import IdentityError
from pfl_common.files import atomic, locks

FOLDER_MODE = 0o700
FILE_MODE = 0o600
LARGEST_FILE = 1 << 20


def make_folder(folder: Path) -> Path:
    """Make a folder that only this user may enter, or check that the one that is there is such a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=FOLDER_MODE)
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that belongs to somebody else or that others may enter."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise IdentityError(
            f"{folder} is not a folder", expected="a private folder", advice="move it away and try again"
        )
    _check_private(folder, found, FOLDER_MODE)


def check(path: Path) -> None:
    """Refuse a file or a folder that belongs to somebody else or that others can reach."""
    found = os.lstat(path)
    _check_private(path, found, FOLDER_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE)


def read(path: Path) -> bytes:
    """Read a file that only this user may read; a link, a foreign owner or wide permissions are refused."""
    # The open file is checked, not its name: between a check by name and the opening it could be exchanged.
    # Without O_NONBLOCK a named pipe in the file's place would block for ever.
    handle = _open_without_links(path)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise IdentityError(f"{path} is not a file", expected="a private file", advice="move it away")
        _check_private(path, found, FILE_MODE)
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise IdentityError(
            f"{path} is larger than {LARGEST_FILE} bytes",
            expected="a small private file",
            advice="move it away",
        )
    return content


def write(path: Path, content: bytes) -> None:
    """Write a private file so that after a power loss the old one is there or the new one, never half."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.new"
    try:
        _fill_new_file(temporary, content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    atomic.settle(path.parent)


def create(path: Path, content: bytes) -> None:
    """Write a private file where none is yet; FileExistsError if there is one."""
    # Written in place: the memory stick it may lie on knows no hard links, and a rename would replace.
    _fill_new_file(path, content)
    atomic.settle(path.parent)


def remove(path: Path) -> None:
    """Remove a file, lastingly; one that is already gone is no error."""
    path.unlink(missing_ok=True)
    atomic.settle(path.parent)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for oneself: other processes and threads that want it wait here."""
    handle = locks.wait_for(folder / ".lock")
    try:
        yield
    finally:
        os.close(handle)


def _fill_new_file(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _open_without_links(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        if path.is_symlink():
            raise IdentityError(
                f"{path} is a link", expected="a file of its own", advice="remove the link and try again"
            ) from None
        raise


def _check_private(path: Path, found: os.stat_result, mode: int) -> None:
    if found.st_uid != os.geteuid():
        raise IdentityError(
            f"{path} belongs to user {found.st_uid}",
            expected=f"it to belong to the user running this, {os.geteuid()}",
            advice="run as its owner, or remove it",
        )
    seen = stat.S_IMODE(found.st_mode)
    if seen & 0o077:
        raise IdentityError(
            f"{path} has mode {seen:04o}, so others can reach what it holds",
            expected=f"mode {mode:04o}",
            advice=f"if nobody else has read it: chmod {mode:o} '{path}'",
        )
