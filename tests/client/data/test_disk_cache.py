"""The cache on a site's disk: private, bounded, whole or not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from pfl_client.data import disk_cache
from pfl_client.data.disk_cache import DiskCache, Index, Layout, make_rows
from pfl_common.errors import DataError, StateError

ROW = Layout((2, 3), "float32")
X = np.arange(30, dtype=np.float32).reshape(5, 2, 3)


def make(cache: DiskCache, name: str, x: np.ndarray = X, times: list[str] | None = None) -> np.ndarray:
    """A recipe's rows, made from `x` in two blocks."""

    def blocks():
        if times is not None:
            times.append(name)
        yield x[:2]
        yield x[2:]

    return make_rows(cache, {"name": name}, ROW, len(x), blocks)


def test_rows_are_made_once(tmp_path: Path) -> None:
    """By this process and by the next; another recipe has rows of its own. Nobody else may read them."""
    times: list[str] = []
    for _ in range(2):
        cache = DiskCache(tmp_path / "cache", 1 << 20)
        for name, x in (("a", X), ("b", X * 2)):
            found = make(cache, name, x, times)
            assert isinstance(found, np.memmap)
            np.testing.assert_array_equal(x, found)
    assert ["a", "b"] == times
    assert {0o600} == {path.stat().st_mode & 0o777 for path in (tmp_path / "cache").iterdir()}
    assert 0o700 == (tmp_path / "cache").stat().st_mode & 0o777


def test_what_is_torn_is_made_anew(tmp_path: Path) -> None:
    """Rows without an index, an index that cannot be read, rows that are too short, what was not finished."""
    folder = tmp_path / "cache"
    for tear in (
        lambda: next(folder.glob("*.json")).unlink(),
        lambda: next(folder.glob("*.json")).write_text("{"),
        lambda: os.truncate(next(folder.glob("*.rows")), 8),
    ):
        make(DiskCache(folder, 1 << 20), "a")
        tear()
        (folder / "x.part").write_bytes(b"half")
        times: list[str] = []
        np.testing.assert_array_equal(X, make(DiskCache(folder, 1 << 20), "a", times=times))
        assert (["a"], []) == (times, list(folder.glob("*.part")))


def test_room_is_made_by_what_nobody_asks_for(tmp_path: Path) -> None:
    """Another run's rows go first; without need they go when a run is opened."""
    folder, size = tmp_path / "cache", X.nbytes
    make(DiskCache(folder, size), "old")
    make(DiskCache(folder, size), "new")
    assert 1 == len(list(folder.glob("*.rows")))
    cache = DiskCache(folder, 9 * size)
    make(cache, "other")
    cache.drop_others()
    assert (1, 1) == (len(list(folder.glob("*.rows"))), len(list(folder.glob("*.json"))))
    np.testing.assert_array_equal(X, make(cache, "other", times=[]))


def test_too_little_room_is_refused_in_words(tmp_path: Path) -> None:
    """For one form of the samples, and for all the forms that a run needs; nothing is left behind."""
    with pytest.raises(DataError, match=r"0\.0 MiB in the run's size(.|\n)*--cache-limit"):
        make(DiskCache(tmp_path / "small", X.nbytes - 1), "a")
    cache = DiskCache(tmp_path / "cache", X.nbytes)
    make(cache, "a")
    with pytest.raises(DataError, match="in all their forms"):
        make(cache, "b")
    assert ([], 1) == (list((tmp_path / "small").iterdir()), len(list((tmp_path / "cache").glob("*.rows"))))


def test_a_full_disk_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is decoded, for all rows together."""

    def full(*words: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk_cache.os, "posix_fallocate", full)
    with pytest.raises(StateError, match="no room for its samples"):
        make(DiskCache(tmp_path / "cache", 1 << 20), "a")
    assert [] == list((tmp_path / "cache").iterdir())


def test_fewer_rows_than_there_was_room_for(tmp_path: Path) -> None:
    """The rest is given back."""
    cache = DiskCache(tmp_path / "cache", 1 << 20)
    with cache.writing("a", ROW, 5) as writer:
        writer.write(X[:2])
    cache.note("a", Index(2))
    assert 2 * ROW.nbytes == (tmp_path / "cache" / "a.rows").stat().st_size
    np.testing.assert_array_equal(X[:2], cache.map("a", ROW, cache.find("a", ROW).count))
    assert 0 == len(cache.map("a", ROW, 0))
