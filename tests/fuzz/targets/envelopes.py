"""Sealed parcels: their frames, as they lie in a file, and the wrap of their key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pfl_common import sealing
from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.sealing import ContentKey, Vouched
from pfl_common.sealing.frame_format import FRAME, TAG, Tampered
from pfl_common.sealing.parcels import check_frames
from pfl_common.sealing.streams import open_unverified
from pfl_common.spec.run import Direction
from tests.common.sealing.parcels import COORDINATOR, SITE, write_header
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import as_file, target

PLAIN = bytes(range(256)) * 8


class Parcel(NamedTuple):
    """A sealed parcel of few bytes."""

    content: bytes
    wrapped: bytes
    vouched: Vouched
    key: ContentKey


@cache
def parcel() -> Parcel:
    """Made once: its key is new at each start."""
    file = as_file(b"", "sealed")
    sealed = sealing.seal_bytes(PLAIN, file, write_header("down"))
    wrapped = sealing.wrap(sealed.content_key, SITE.card, header_hash=sealed.binding.hash)
    vouched = Vouched(sealed.binding, sealed.digest, sealed.size)
    return Parcel(file.read_bytes(), wrapped, vouched, sealed.content_key)


@target("frames", Tampered, seeds=lambda: [parcel().content])
def open_frames(content: bytes) -> None:
    """Whatever lies there: all of it is the sender's, or none of it comes out."""
    made, file = parcel(), as_file(content, "frames")
    assert check_frames(file, key=made.key, vouched=made.vouched) <= len(content)
    for size in {made.vouched.size, max(TAG, len(content))}:
        vouched = Vouched(made.vouched.binding, made.vouched.digest, size)
        with ends_in(Tampered):
            opened = sealing.open_to_bytes(file, key=made.key, vouched=vouched)
            assert bytes(opened) == PLAIN
            assert size <= FRAME + TAG


@target("wrap", Tampered, seeds=lambda: [parcel().wrapped])
def unwrap(content: bytes) -> None:
    """Only the sender's own wrap opens, and only for whom it is."""
    for keys, name in ((SITE.keys, SITE.name), (COORDINATOR.keys, SITE.name), (EnvelopeKeys.generate(), "x")):
        try:
            sealing.unwrap(content, keys, name=name, header_hash=parcel().vouched.binding.hash)
        except Tampered:
            continue
        assert content == parcel().wrapped


LONG = bytes(range(251)) * (2 * FRAME // 251 + 9)
"""Of three frames, the last of which is short."""
FRAMES = 3


class Sheaf(NamedTuple):
    """A parcel of several frames, and those of another one under the same header."""

    frames: list[bytes]
    foreign: list[bytes]
    vouched: Vouched
    key: ContentKey


@cache
def sheaf(direction: Direction) -> Sheaf:
    """Made once."""
    file = as_file(b"", f"sheaf-{direction}")
    sealed = sealing.seal_bytes(LONG, file, write_header(direction))
    frames = _cut(file.read_bytes())
    other = sealing.seal_bytes(LONG, file, write_header(direction))
    vouched = Vouched(sealed.binding, sealed.digest, sealed.size)
    assert other.content_key != sealed.content_key
    return Sheaf(frames, _cut(file.read_bytes()), vouched, sealed.content_key)


def _cut(sealed: bytes) -> list[bytes]:
    return [sealed[at : at + FRAME + TAG] for at in range(0, len(sealed), FRAME + TAG)]


@target(
    "frame_order",
    Tampered,
    seeds=lambda: [bytes([way, *(0, 0, 0), *(1, 0, 0), *(2, 0, 0)]) for way in (0, 1)],
)
def open_in_order(recipe: bytes) -> None:
    """Frames cut, changed, reordered, repeated or of another parcel, by a recipe of three bytes for each: which frame,
    what is done with it, and where. The first byte says which way the parcel went.
    """
    way, recipe = recipe[:1], recipe[1:]
    made = sheaf("up" if way and way[0] % 2 else "down")
    content = b"".join(_follow(made, recipe))
    file, whole = as_file(content, "sheaf"), content == b"".join(made.frames)
    genuine = check_frames(file, key=made.key, vouched=made.vouched)
    assert content[:genuine] == b"".join(made.frames)[:genuine]
    for size in {made.vouched.size, max(TAG, len(content))}:
        vouched = Vouched(made.vouched.binding, made.vouched.digest, size)
        with ends_in(Tampered):
            assert bytes(sealing.open_to_bytes(file, key=made.key, vouched=vouched)) == LONG
            assert whole
        out = file.with_name("opened")
        with ends_in(Tampered):
            sealing.open_to_file(file, out, key=made.key, vouched=vouched)
            assert out.read_bytes() == LONG
        with ends_in(Tampered), open_unverified(file, key=made.key, vouched=vouched) as source:
            plain = memoryview(bytearray(source.size))
            source.read_into(0, plain)
            source.check()
            assert bytes(plain) == LONG


def _follow(made: Sheaf, recipe: bytes) -> Iterator[bytes]:
    for at in range(0, min(len(recipe), 3 * (FRAMES + 2)) - 2, 3):
        which, how, where = recipe[at : at + 3]
        frame = made.frames[which % FRAMES]
        place = where * len(frame) // 256
        match how % 5:
            case 1:
                yield frame[:place]
            case 2:
                yield frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
            case 3:
                yield frame + bytes(where)
            case 4:
                yield made.foreign[which % FRAMES]
            case _:
                yield frame
