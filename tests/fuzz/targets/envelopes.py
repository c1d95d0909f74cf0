"""Sealed parcels: their frames, as they lie in a file, and the wrap of their key."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from pfl_common import sealing
from pfl_common.identity.cards import EnvelopeKeys
from pfl_common.sealing import ContentKey, Vouched
from pfl_common.sealing.frame_format import FRAME, TAG, Tampered
from pfl_common.sealing.parcels import check_frames
from tests.common.sealing.parcels import COORDINATOR, SITE, write_header
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
        try:
            opened = sealing.open_to_bytes(file, key=made.key, vouched=vouched)
        except Tampered:
            continue
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
