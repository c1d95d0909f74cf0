"""Whether something failed because a disk is full."""

from __future__ import annotations

import errno
import sqlite3

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""No room on the disk, or none left of the user's share of it."""


def is_full(error: BaseException) -> bool:
    """Whether it failed for want of room on a disk, and for nothing else."""
    if isinstance(error, sqlite3.OperationalError):
        # Errors that the library's Python side raises, as for a text that is no text, carry no code.
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _NO_ROOM
