"""Whether something failed because a disk is full."""

from __future__ import annotations

import errno
import sqlite3

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""No room on the disk, or none left of the user's share of it."""


def is_full(error: BaseException) -> bool:
    """Whether it failed for want of room on a disk, and for nothing else."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _NO_ROOM
