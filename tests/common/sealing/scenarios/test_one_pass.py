"""Parcels that are verified while they are read, and parcels that are opened over an older file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.sealing import (
    FRAME,
    TAG,
    Sealed,
    Tampered,
    Vouched,
    open_over_file,
    open_unverified,
    seal_bytes,
)
from tests.common.sealing.parcels import PLAIN, SEALED_FRAME, write_header

SIZES = (0, 1, FRAME, 2 * FRAME + 7)


def known(sealed: Sealed) -> dict[str, object]:
    """What its recipient knows of a parcel."""
    return {"key": sealed.content_key, "vouched": Vouched(sealed.binding, sealed.digest, sealed.size)}


def read_all(file: Path, sealed: Sealed, *, step: int) -> bytes:
    """Everything, in order, in steps that do not fit the frames."""
    found = bytearray()
    with open_unverified(file, **known(sealed)) as source:
        for at in range(0, source.size, step):
            piece = bytearray(min(step, source.size - at))
            source.read_into(at, memoryview(piece))
            found += piece
    return bytes(found)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("size", SIZES)
def test_read_once_and_found_whole(tmp_path: Path, way: str, size: int) -> None:
    """The content comes out as it went in, an empty one too, whatever the steps."""
    sealed = seal_bytes(PLAIN[:size], tmp_path / "p", write_header(way))
    for step in (FRAME, FRAME - 3, 700_001):
        assert PLAIN[:size] == read_all(tmp_path / "p", sealed, step=step)


def test_who_does_not_read_all_has_verified_nothing(tmp_path: Path) -> None:
    """A parcel of which a part was not looked at is refused, though every frame that was looked at is genuine."""
    sealed = seal_bytes(PLAIN[: 2 * FRAME], tmp_path / "p", write_header("up"))
    with (
        pytest.raises(Tampered, match="frames were read"),
        open_unverified(tmp_path / "p", **known(sealed)) as source,
    ):
        source.read_into(0, memoryview(bytearray(FRAME)))


@pytest.mark.parametrize("change", ["flip", "cut", "longer", "swap", "another"])
def test_what_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    """A changed bit, a cut, an addition, frames in another order, another parcel of the same key's owner."""
    file = tmp_path / "p"
    sealed = seal_bytes(PLAIN[: 2 * FRAME], file, write_header("up"))
    other = seal_bytes(PLAIN[: 2 * FRAME], tmp_path / "q", write_header("up"))
    content = bytearray(file.read_bytes())
    if change == "flip":
        content[-TAG - 5] ^= 1
    elif change == "another":
        sealed = Sealed(sealed.content_key, sealed.binding, other.digest, other.tags_hash, sealed.size)
    else:
        content = {
            "cut": content[:-1],
            "longer": content + b"\0",
            "swap": content[SEALED_FRAME:] + content[:SEALED_FRAME],
        }[change]
    file.write_bytes(content)
    with pytest.raises(Tampered):
        read_all(file, sealed, step=FRAME)


@pytest.mark.parametrize("size", SIZES)
def test_opened_over_an_older_file(tmp_path: Path, size: int) -> None:
    """Longer or shorter before: afterwards it is the content and nothing else, readable by its owner alone."""
    sealed = seal_bytes(PLAIN[:size], tmp_path / "p", write_header("down"))
    for before in (b"", b"x" * (3 * FRAME)):
        (tmp_path / "out").unlink(missing_ok=True)
        if before:
            (tmp_path / "out").write_bytes(before)
        open_over_file(tmp_path / "p", tmp_path / "out", **known(sealed))
        assert PLAIN[:size] == (tmp_path / "out").read_bytes()


def test_what_does_not_open_leaves_no_file(tmp_path: Path) -> None:
    """Half of the old content and half of the new one would be neither."""
    sealed = seal_bytes(PLAIN[: 2 * FRAME], tmp_path / "p", write_header("down"))
    whole = (tmp_path / "p").read_bytes()
    (tmp_path / "p").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(Tampered):
        open_over_file(tmp_path / "p", tmp_path / "out", **known(sealed))
    assert not (tmp_path / "out").exists()
