"""Files change whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from pfl_common.files import atomic


def test_a_small_file_is_put_in_its_place(tmp_path: Path) -> None:
    """The new content is there, and no draft."""
    path = tmp_path / "current"
    atomic.write(path, "one")
    atomic.write(path, "two")
    assert ("two", ["current"]) == (path.read_text(), os.listdir(tmp_path))


def test_what_breaks_off_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the exchange the old one is whole."""
    path = tmp_path / "current"
    atomic.write(path, "one")

    def fail(source: Path, target: Path) -> None:
        raise OSError("cut off")

    monkeypatch.setattr(atomic, "move", fail)
    with pytest.raises(OSError, match="cut off"):
        atomic.write(path, "two")
    assert "one" == path.read_text()


def test_a_line_is_added_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes half a line leaves none of it behind."""
    path = tmp_path / "lines"
    atomic.append(path, b"one\n", mode=0o600)
    assert 0o600 == path.stat().st_mode & 0o777
    genuine = os.fdopen

    class Half(io.FileIO):
        def write(self, line: bytes) -> int:  # type: ignore[override]
            return super().write(line[: len(line) // 2])

    monkeypatch.setattr(os, "fdopen", lambda handle, mode, buffering: Half(handle, mode))
    with pytest.raises(OSError, match="whole line"):
        atomic.append(path, b"two\n")
    monkeypatch.setattr(os, "fdopen", genuine)
    atomic.append(path, b"three\n")
    assert b"one\nthree\n" == path.read_bytes()
