"""Sites that fetch the same at a time share what is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pfl_common.wire import convert
from pfl_server.network import shared_frames
from pfl_server.network.shared_frames import SharedFrames

CONTENT = os.urandom(3 * convert.FRAME_BYTES + 5)


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places that are read of an open file, whose number is the first."""
    (tmp_path / "blob").write_bytes(CONTENT)
    number, read = os.open(tmp_path / "blob", os.O_RDONLY), os.pread
    seen = [number]

    def watched(file: int, count: int, at: int) -> bytes:
        seen.append(at)
        return read(file, count, at)

    monkeypatch.setattr(shared_frames.os, "pread", watched)
    return seen


def fetch(frames: SharedFrames, file: int, at: int = 0) -> bytes:
    """All of it from there on."""
    found = b""
    while frame := frames.read(file, "d", at):
        found, at = found + frame, at + len(frame)
    return found


def test_what_one_has_read_another_is_given(reads: list[int]) -> None:
    """While both fetch; from where each of them goes on, and to the end."""
    frames, at = SharedFrames(), [place * convert.FRAME_BYTES for place in range(4)]
    with frames.fetching(), frames.fetching():
        assert CONTENT == fetch(frames, reads[0]) == fetch(frames, reads[0])
        assert [*at, len(CONTENT)] == reads[1:]
        assert CONTENT[7:] == fetch(frames, reads[0], 7)
    os.close(reads[0])


def test_nothing_is_kept_for_one_alone_or_for_long(reads: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor of what was read long ago, nor once nobody fetches."""
    frames = SharedFrames()
    monkeypatch.setattr(shared_frames, "AT_HAND", 2)
    with frames.fetching():
        fetch(frames, reads[0])
        assert not frames._frames
        with frames.fetching():
            fetch(frames, reads[0])
            assert 2 == len(frames._frames)
    assert not frames._frames
    os.close(reads[0])
