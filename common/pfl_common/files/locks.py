"""Locks on files: the kernel lets go of them however their holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pfl_common.errors import StateError


def take(path: Path) -> int | None:
    """Hold a lock file until its handle is closed; None: somebody else holds it."""
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        os.close(handle)
        raise StateError(
            f"{path} cannot be locked: {error.strerror}",
            expected="a file system with locks, so that no second program writes there",
            advice="put the state folder on a local disk",
        ) from None
    return handle


def wait_for(path: Path) -> int:
    """Hold a lock file until its handle is closed, as soon as nobody else does."""
    handle = _open(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except BaseException:
        os.close(handle)
        raise
    return handle


def is_held(path: Path) -> bool:
    """Whether somebody holds a lock file that is there; asking takes it for no longer than that."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
