"""A lock file is held by one at a time, and says so."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from pfl_common.errors import StateError
from pfl_common.files import locks


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """A second taker gets nothing; when the handle is closed, the next one has it."""
    path = tmp_path / "lock"
    first = locks.take(path)
    assert first is not None and locks.is_held(path)
    assert locks.take(path) is None
    os.close(first)
    assert not locks.is_held(path)
    second = locks.take(path)
    assert second is not None
    os.close(second)


def test_who_waits_gets_it_next(tmp_path: Path) -> None:
    """Waiting ends when the holder lets go, and not before."""
    path, got = tmp_path / "lock", threading.Event()
    first = locks.take(path)
    assert first is not None

    def wait() -> None:
        os.close(locks.wait_for(path))
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.is_set()
    os.close(first)
    assert got.wait(10)
    thread.join()


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for a second program, and no handle stays open."""

    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(StateError, match=r"(?s)lock cannot be locked.*local disk"):
        locks.take(tmp_path / "lock")
    assert before == len(os.listdir("/dev/fd"))
