"""Sealed files as streams: whatever the pieces, the same parcel; read at any place, nothing that is not genuine."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from pfl_common.sealing import (
    FRAME,
    Sealed,
    SealedSource,
    Tampered,
    Vouched,
    check_whole,
    frame_cipher,
    open_source,
    open_to_bytes,
    seal_bytes,
    seal_stream,
    sealed_size,
)
from pfl_common.sealing import streams as module
from tests.common.sealing.parcels import PLAIN, SEALED_FRAME, same, write_header

KEY = bytes(range(32))
EDGES = (0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME - 1, 2 * FRAME, 2 * FRAME + 1, len(PLAIN))


@contextmanager
def one_key() -> Iterator[None]:
    """While open, sealing draws the same key each time, so that two parcels can be compared byte for byte."""
    with mock.patch("pfl_common.sealing.frame_cipher.secrets.token_bytes", lambda count: KEY[:count]):
        yield


def stream(pieces: list[bytes], out: Path, header: bytes) -> Sealed:
    """A parcel written piece by piece."""
    with seal_stream(out, header) as sealing:
        for piece in pieces:
            assert len(piece) == sealing.writer.write(piece)
    return sealing.sealed


def known(sealed: Sealed) -> dict[str, object]:
    """What its recipient knows of a parcel."""
    return {
        "key": sealed.content_key,
        "vouched": Vouched(sealed.binding, sealed.digest, sealed.size),
    }


@st.composite
def cut(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A size and the places where its bytes are cut into pieces, empty ones among them."""
    size = draw(st.one_of(st.sampled_from(EDGES), st.integers(0, len(PLAIN))))
    near = st.builds(lambda edge, d: min(size, max(0, edge + d)), st.sampled_from(EDGES), st.integers(-2, 2))
    return size, sorted(draw(st.lists(st.one_of(near, st.integers(0, size)), max_size=6)))


@settings(max_examples=80, deadline=None)
@given(way=st.sampled_from(["up", "down"]), parts=cut())
def test_any_pieces_give_the_same_parcel(way: str, parts: tuple[int, list[int]]) -> None:
    """Written in pieces of any size it is, under one key, the parcel that whole bytes give."""
    size, cuts = parts
    bounds = [0, *cuts, size]
    pieces = [PLAIN[start:end] for start, end in itertools.pairwise(bounds)]
    header = write_header(way)
    with tempfile.TemporaryDirectory() as name, one_key():
        folder = Path(name)
        expected = seal_bytes(PLAIN[:size], folder / "whole", header)
        found = stream(pieces, folder / "pieces", header)
        assert same((folder / "whole").read_bytes(), (folder / "pieces").read_bytes())
        assert (expected.digest, expected.tags_hash, expected.size, expected.binding) == (
            found.digest,
            found.tags_hash,
            found.size,
            found.binding,
        )
        assert same(PLAIN[:size], open_to_bytes(folder / "pieces", **known(found)))
        assert {"whole", "pieces"} == {path.name for path in folder.iterdir()}


def test_each_stream_has_a_key_of_its_own(tmp_path: Path, way: str) -> None:
    """The same words sealed twice are two parcels that do not open with each other's key."""
    first, second = (stream([b"model"], tmp_path / name, write_header(way)) for name in "ab")
    assert (tmp_path / "a").read_bytes() != (tmp_path / "b").read_bytes()
    with pytest.raises(Tampered):
        open_to_bytes(tmp_path / "a", **known(first) | {"key": second.content_key})


def test_nothing_follows_the_last_frame(tmp_path: Path) -> None:
    """A piece after the end, or a second end, is an error and not lost in silence."""
    with seal_stream(tmp_path / "a", write_header("up")) as sealing:
        sealing.writer.write(b"model")
    for late in (lambda: sealing.writer.write(b"x"), sealing.writer.finish):
        with pytest.raises(ValueError, match="last"):
            late()
    assert b"model" == open_to_bytes(tmp_path / "a", **known(sealing.sealed))


@pytest.mark.parametrize("written", [0, 5, FRAME, 2 * FRAME + 7])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, written: int) -> None:
    """The writer fails midway: no draft stays, and what lay under the name is as it was."""
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(OSError, match="full"), seal_stream(tmp_path / "a", write_header("up")) as sealing:
        sealing.writer.write(bytes(written))
        raise OSError("the disk is full")
    assert (["a"], b"before") == (os.listdir(tmp_path), (tmp_path / "a").read_bytes())
    with pytest.raises(IndexError):
        _ = sealing.sealed


def test_a_frame_that_fails_spends_its_nonce(tmp_path: Path) -> None:
    """After an error in the middle of a frame, other bytes never get the same place under the same key."""
    nonces = []

    class Failing:
        """Remembers each nonce, and fails at the second."""

        def __init__(self, key: bytes) -> None:
            self.cipher = AESGCM(key)

        def encrypt_into(self, nonce: bytes, *words: object) -> int:
            nonces.append(nonce)
            if len(nonces) == 2:
                raise MemoryError
            return self.cipher.encrypt_into(nonce, *words)

    with (
        mock.patch.object(frame_cipher, "AESGCM", Failing),
        seal_stream(tmp_path / "a", write_header("up")) as s,
    ):
        s.writer.write(bytes(FRAME + 1))
        with pytest.raises(MemoryError):
            s.writer.write(bytes(FRAME))
        s.writer.write(bytes(FRAME))
    assert 2 < len(nonces) == len(set(nonces))


def test_a_bad_header_seals_nothing(tmp_path: Path) -> None:
    """The error comes before the file."""
    with pytest.raises(Tampered), seal_stream(tmp_path / "a", b"{}"):
        pass
    assert [] == os.listdir(tmp_path)


@pytest.fixture(scope="module", params=["up", "down"])
def lying(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sealed]:
    """A parcel of two whole frames and a short one on the disk."""
    path = tmp_path_factory.mktemp("streams") / "a"
    return path, seal_bytes(PLAIN, path, write_header(request.param))


PLACES = st.tuples(
    st.one_of(
        st.sampled_from([0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 2 * FRAME + 99]),
        st.integers(0, len(PLAIN)),
    ),
    st.one_of(
        st.sampled_from([0, 1, 16, 100, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME]), st.integers(0, len(PLAIN))
    ),
)


@settings(max_examples=120, deadline=None)
@given(places=st.lists(PLACES, min_size=1, max_size=8))
def test_any_place_can_be_read(lying: tuple[Path, Sealed], places: list[tuple[int, int]]) -> None:
    """In any order, over any borders, again and again: always the bytes that lie there."""
    path, sealed = lying
    with open_source(path, **known(sealed)) as source:
        assert len(PLAIN) == source.size
        for offset, length in places:
            expected = PLAIN[offset : offset + length]
            target = bytearray(b"-" * (len(expected) + 2))
            source.read_into(offset, memoryview(target)[1:-1])
            assert same(b"-" + expected + b"-", target)


@pytest.mark.parametrize("place", [(-1, 1), (0, len(PLAIN) + 1), (len(PLAIN), 1), (len(PLAIN) + 1, 0)])
def test_there_is_nothing_outside(lying: tuple[Path, Sealed], place: tuple[int, int]) -> None:
    """A place before the beginning or past the end is an error."""
    path, sealed = lying
    with open_source(path, **known(sealed)) as source, pytest.raises(ValueError, match="of"):
        source.read_into(place[0], memoryview(bytearray(place[1])))


def test_reading_in_order_opens_each_frame_once(lying: tuple[Path, Sealed]) -> None:
    """Small pieces in order, from two places in turn as a fold reads values and weights: no frame twice."""
    path, sealed = lying
    opened = []
    opens = frame_cipher.Opener.opens

    def count(self: frame_cipher.Opener, frame: memoryview, into: memoryview, *, nonce: bytes) -> bool:
        opened.append(nonce)
        return opens(self, frame, into, nonce=nonce)

    with mock.patch.object(frame_cipher.Opener, "opens", count), open_source(path, **known(sealed)) as source:
        target = memoryview(bytearray(1 << 12))
        for at in range(0, FRAME, len(target)):
            for offset in (at, FRAME + at):
                source.read_into(offset, target)
                assert same(PLAIN[offset : offset + len(target)], target)
    assert 2 == len(opened) == len(set(opened))


def test_more_places_than_are_kept_at_hand(
    lying: tuple[Path, Sealed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame that had to make room is opened again, and is still itself."""
    monkeypatch.setattr(module, "FRAMES_AT_HAND", 1)
    path, sealed = lying
    with open_source(path, **known(sealed)) as source:
        for offset in (5, FRAME + 5, 5, 2 * FRAME + 5, FRAME + 5):
            target = bytearray(50)
            source.read_into(offset, memoryview(target))
            assert same(PLAIN[offset : offset + 50], target)


def test_an_empty_parcel(tmp_path: Path, way: str) -> None:
    """No bytes are one frame all the same, whose tag is checked."""
    sealed = stream([b"", b""], tmp_path / "a", write_header(way))
    assert sealed_size(0) == sealed.size == (tmp_path / "a").stat().st_size
    check_whole(tmp_path / "a", **known(sealed))
    with open_source(tmp_path / "a", **known(sealed)) as source:
        source.read_into(0, memoryview(bytearray()))
        assert 0 == source.size
        with pytest.raises(ValueError, match="of 0"):
            source.read_into(0, memoryview(bytearray(1)))
    (tmp_path / "a").write_bytes(bytes(sealed.size))
    with pytest.raises(Tampered):
        check_whole(tmp_path / "a", **known(sealed))


Spoil = Callable[[bytes], bytes]
FRAMES = {
    "first exchanged": lambda raw: raw[SEALED_FRAME : 2 * SEALED_FRAME] + raw[SEALED_FRAME:],
    "middle is the first": lambda raw: raw[:SEALED_FRAME] * 2 + raw[2 * SEALED_FRAME :],
    "first two swapped": lambda raw: (
        raw[SEALED_FRAME : 2 * SEALED_FRAME] + raw[:SEALED_FRAME] + raw[2 * SEALED_FRAME :]
    ),
    "last is cut": lambda raw: raw[:-1],
    "last is gone": lambda raw: raw[: 2 * SEALED_FRAME],
    "all is gone": lambda raw: b"",
    "zeros": lambda raw: bytes(len(raw)),
}
GENUINE = {
    "first exchanged": {1, 2},
    "middle is the first": {0, 2},
    "first two swapped": {2},
    "last is cut": {0, 1},
    "last is gone": {0, 1},
    "all is gone": set(),
    "zeros": set(),
}


@pytest.mark.parametrize("how", FRAMES)
@pytest.mark.parametrize("length", [40, FRAME])
def test_a_spoilt_frame_is_never_handed_out(
    lying: tuple[Path, Sealed], tmp_path: Path, how: str, length: int
) -> None:
    """Part or whole, from memory at hand or straight into the caller's: other frames read, this one does not."""
    path, sealed = lying
    (tmp_path / "a").write_bytes(FRAMES[how](path.read_bytes()))
    with open_source(tmp_path / "a", **known(sealed)) as source:
        read = {index for index in (0, 1, 2) if reads(source, index, length)}
    assert GENUINE[how] == read


def reads(source: SealedSource, index: int, length: int) -> bool:
    """Whether this frame is handed out; if not, the target holds nothing of it."""
    expected = PLAIN[index * FRAME : index * FRAME + length]
    expected = expected[: min(length, len(expected))]
    target = bytearray(len(expected))
    try:
        source.read_into(index * FRAME, memoryview(target))
    except Tampered as refused:
        assert "frame" == refused.code
        assert same(bytes(len(expected)), target)
        return False
    assert same(expected, target)
    return True


@settings(max_examples=60, deadline=None)
@given(bit=st.integers(0, sealed_size(len(PLAIN)) * 8 - 1))
def test_a_flipped_bit_spoils_its_frame_alone(lying: tuple[Path, Sealed], bit: int) -> None:
    """In content or tag: the frame it is in is refused each time it is asked for, and all others read."""
    path, sealed = lying
    spoilt = bytearray(path.read_bytes())
    spoilt[bit // 8] ^= 1 << bit % 8
    hit = bit // 8 // SEALED_FRAME
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a").write_bytes(spoilt)
        with open_source(Path(name) / "a", **known(sealed)) as source:
            for _ in range(2):
                for index in range(3):
                    assert (index != hit) == reads(source, index, 100)


def test_a_frame_of_another_parcel(lying: tuple[Path, Sealed], tmp_path: Path) -> None:
    """Neither under another header nor under another key is a frame anything here."""
    _, sealed = lying
    for header in (write_header(sealed.binding.direction), write_header(sealed.binding.direction, round=4)):
        other = seal_bytes(PLAIN, tmp_path / "b", header)
        with open_source(tmp_path / "b", **known(sealed)) as source:
            assert [False] * 3 == [reads(source, index, 10) for index in range(3)]
        with open_source(tmp_path / "b", **known(other)) as source:
            assert [True] * 3 == [reads(source, index, 10) for index in range(3)]


def test_a_refused_frame_leaves_the_memory_at_hand_clean(lying: tuple[Path, Sealed], tmp_path: Path) -> None:
    """What was opened before a bad frame is still right after it, and takes no second opening."""
    path, sealed = lying
    raw = bytearray(path.read_bytes())
    raw[SEALED_FRAME + 3] ^= 1
    (tmp_path / "a").write_bytes(raw)
    with open_source(tmp_path / "a", **known(sealed)) as source:
        assert [True, False, True, True] == [reads(source, index, 70) for index in (0, 1, 0, 2)]
        (tmp_path / "a").write_bytes(b"")
        assert [True, False, True] == [reads(source, index, 70) for index in (0, 1, 2)]
