"""Whether something failed because a disk is full, or because too many files are open: both pass by waiting."""

from __future__ import annotations

import errno

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""No room on the disk, or none left of the user's share of it."""
_SQLITE_FULL, _SQLITE_CANTOPEN = 13, 14
"""SQLite's own numbers for that: its module is a megabyte, which a program without a database does not load."""
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
"""No descriptor left to this process, or to the whole machine."""


def is_full(error: BaseException) -> bool:
    """Whether it failed for want of room on a disk, and for nothing else."""
    return _is_one_of(error, _NO_ROOM, _SQLITE_FULL)


def is_crowded(error: BaseException) -> bool:
    """Whether it failed for want of a descriptor. SQLite says of that only that it cannot open a file."""
    return _is_one_of(error, _NO_DESCRIPTOR, _SQLITE_CANTOPEN)


def _is_one_of(error: BaseException, numbers: tuple[int, ...], code: int) -> bool:
    if isinstance(error, OSError):
        return error.errno in numbers
    # SQLite's errors carry its code, but for those of the library's Python side, as for a text that is no text.
    return getattr(error, "sqlite_errorcode", None) == code
