"""Parcels that are opened frame by frame as they come."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.sealing import FRAME, TAG, ArrivingFrames, EarlyOpener, Sealed, Vouched, seal_bytes
from tests.common.sealing.parcels import PLAIN, SEALED_FRAME, write_header

SIZES = (0, 1, FRAME, 2 * FRAME + 7)


def known(sealed: Sealed) -> dict[str, object]:
    """What its recipient knows of a parcel."""
    return {"key": sealed.content_key, "vouched": Vouched(sealed.binding, sealed.digest, sealed.size)}


def feed(early: EarlyOpener, content: bytes, *, start: int = 0) -> bool:
    """Show it a parcel as a stream brings it, from there on, and that there is no more."""
    for at in range(start, len(content), SEALED_FRAME):
        early.take(at, content[at : at + SEALED_FRAME])
    return early.close()


def change(raw: bytes, how: str) -> tuple[bytes, int]:
    """A parcel of three frames as it should not come, and from where on it comes."""
    one, two, rest = raw[:SEALED_FRAME], raw[SEALED_FRAME : 2 * SEALED_FRAME], raw[2 * SEALED_FRAME :]
    changed = {
        "flip": raw[:9] + bytes([raw[9] ^ 1]) + raw[10:],
        "cut": one + two,
        "swap": two + one + rest,
        "late": raw,
        "longer frame": raw + b"more",
    }
    return changed[how], SEALED_FRAME if how == "late" else 0


CHANGES = ("flip", "cut", "swap", "late", "longer frame")


@pytest.mark.parametrize("size", SIZES)
def test_opened_over_a_file(tmp_path: Path, size: int) -> None:
    """The same content as at once, over a longer file; begun again after other bytes had come."""
    sealed = seal_bytes(PLAIN[:size], tmp_path / "p", write_header("down"))
    raw = (tmp_path / "p").read_bytes()
    (tmp_path / "out").write_bytes(bytes(4 * FRAME))
    early = EarlyOpener(tmp_path / "out", **known(sealed))
    early.take(0, raw[:-1] + bytes([raw[-1] ^ 1]))
    assert feed(early, raw)
    assert PLAIN[:size] == (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("size", SIZES)
def test_opened_into_memory(tmp_path: Path, size: int) -> None:
    """Each frame in its place, and nothing beside it."""
    sealed = seal_bytes(PLAIN[:size], tmp_path / "p", write_header("down"))
    raw, memory = (tmp_path / "p").read_bytes(), bytearray(size)
    early = EarlyOpener(memoryview(memory), **known(sealed))
    early.take(0, raw[:-1] + bytes([raw[-1] ^ 1]))
    assert feed(early, raw)
    assert PLAIN[:size] == memory


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("place", ["file", "memory"])
def test_what_does_not_open_as_it_comes_is_not_complete(tmp_path: Path, how: str, place: str) -> None:
    """Nothing is raised: the digest is compared when all has come, and then says what is wrong."""
    sealed = seal_bytes(PLAIN[: 2 * FRAME + 7], tmp_path / "p", write_header("down"))
    changed, start = change((tmp_path / "p").read_bytes(), how)
    out = tmp_path / "out" if place == "file" else memoryview(bytearray(2 * FRAME + 7))
    assert not feed(EarlyOpener(out, **known(sealed)), changed, start=start)


def bring(frames: ArrivingFrames, content: bytes, *, start: int = 0) -> bytes:
    """What comes out of an upload as a stream brings it."""
    found = b""
    for at in range(start, len(content), SEALED_FRAME):
        opened = frames.open(at, content[at : at + SEALED_FRAME], lambda count: memoryview(bytearray(count)))
        found += b"" if opened is None else bytes(opened)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_an_upload_that_came_as_it_was_signed(tmp_path: Path, size: int) -> None:
    """Its content, and not before the last frame that it is whole."""
    sealed = seal_bytes(PLAIN[:size], tmp_path / "p", write_header("up"))
    raw, frames = (tmp_path / "p").read_bytes(), ArrivingFrames(**known(sealed))
    last = (len(raw) - TAG) // SEALED_FRAME * SEALED_FRAME
    before = bring(frames, raw[:last])
    assert not frames.whole
    assert PLAIN[:size] == before + bring(frames, raw, start=last)
    assert frames.whole


@pytest.mark.parametrize("how", [*CHANGES, "another"])
def test_an_upload_that_came_otherwise_is_not_whole(tmp_path: Path, how: str) -> None:
    """Also one of which every frame opens, but which is another than its sender signed."""
    sealed = seal_bytes(PLAIN[: 2 * FRAME + 7], tmp_path / "p", write_header("up"))
    raw = (tmp_path / "p").read_bytes()
    if how == "another":
        frames = ArrivingFrames(
            key=sealed.content_key, vouched=Vouched(sealed.binding, "0" * 64, sealed.size)
        )
        assert PLAIN[: 2 * FRAME + 7] == bring(frames, raw)
    else:
        frames = ArrivingFrames(**known(sealed))
        changed, start = change(raw, how)
        bring(frames, changed, start=start)
    assert not frames.whole
