"""Sealed files as streams: written piece by piece, read at any place without opening the rest."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from pfl_common.sealing.content_key import ContentKey
from pfl_common.sealing.frame_cipher import Buffer, Opener, Sealer, make_nonce
from pfl_common.sealing.frame_format import FRAME, TAG, Tampered, bind, plain_size
from pfl_common.sealing.parcels import (
    Fingerprint,
    Sealed,
    Vouched,
    check_size,
    compare,
    draft_of,
    fill,
    room_for,
)

FRAMES_AT_HAND = 3
"""Opened frames that stay at hand: a reader may go through two places of a parcel at a time."""


class SealWriter:
    """Accepts a parcel in pieces of any size and seals it as full frames, straight from the caller's memory."""

    def __init__(self, file: BinaryIO, header: bytes) -> None:
        self._file, self._binding = file, bind(header)
        self._sealer, self._fingerprint = Sealer(self._binding), Fingerprint(self._binding)
        self._frame = memoryview(bytearray(FRAME + TAG))
        self._rest, self._held, self._size = memoryview(bytearray(FRAME)), 0, 0
        self._finished = False

    def write(self, piece: Buffer) -> int:
        """Take the next piece."""
        if self._finished:
            raise ValueError("a piece after the last one")
        view = memoryview(piece).cast("B")
        at = 0
        while at < len(view):
            if self._held == FRAME:
                self._seal(self._rest, last=False)
                self._held = 0
            # Only when more follows: the last frame is sealed as the last.
            if not self._held and len(view) - at > FRAME:
                self._seal(view[at : at + FRAME], last=False)
                at += FRAME
                continue
            count = min(FRAME - self._held, len(view) - at)
            self._rest[self._held : self._held + count] = view[at : at + count]
            self._held, at = self._held + count, at + count
        return len(view)

    def finish(self) -> Sealed:
        """Seal what is left as the last frame; nothing can be written after it."""
        self._finished = True
        self._seal(self._rest[: self._held], last=True)
        found = self._fingerprint
        return Sealed(self._sealer.key, self._binding, found.digest, found.tags_hash, self._size)

    def _seal(self, block: memoryview, *, last: bool) -> None:
        frame = self._sealer.seal(block, self._frame, last=last)
        self._fingerprint.add(frame)
        self._file.write(frame)
        self._size += len(frame)


@dataclass
class Sealing:
    """A file being sealed; `sealed` is set once the `with` is over."""

    writer: SealWriter
    _sealed: list[Sealed] = field(default_factory=list)

    @property
    def sealed(self) -> Sealed:
        """The finished parcel."""
        return self._sealed[0]


@contextmanager
def seal_stream(out: Path, header: bytes, *, over: bool = False) -> Iterator[Sealing]:
    """While open, what is written is sealed into a draft; it gets its name when everything has gone well. `over` as in
    `draft_of`.
    """
    with draft_of(out, over=over) as file:
        sealing = Sealing(SealWriter(file, header))
        yield sealing
        sealing._sealed.append(sealing.writer.finish())


class SealedSource:
    """A sealed file, readable at any place as if it were open; each frame is verified before it is returned.

    Whether the parcel is whole, `check` says when all of it has been read once in order.
    """

    def __init__(self, file: FileIO, key: ContentKey, vouched: Vouched) -> None:
        self._file, self._vouched = file, vouched
        self._opener = Opener(key, vouched.binding.hash)
        self.size = plain_size(vouched.size)
        self._last = max(0, -(-self.size // FRAME) - 1)
        self._sealed = room_for(self.size, TAG)
        self._opened: OrderedDict[int, memoryview] = OrderedDict()
        self._fingerprint, self._seen = Fingerprint(vouched.binding), 0

    def check(self) -> None:
        """Refuse a parcel that was not read whole, or is not what its sender signed."""
        if not self.size and not self._seen:
            self._open(0, memoryview(bytearray()))
        if self._seen <= self._last:
            raise Tampered("truncated", f"{self._seen} of {self._last + 1} frames were read; expected: all")
        compare(self._fingerprint, self._vouched)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the content from `offset` on."""
        if offset < 0 or offset + len(target) > self.size:
            raise ValueError(f"bytes {offset} to {offset + len(target)} of {self.size}")
        at = 0
        while at < len(target):
            index, skip = divmod(offset + at, FRAME)
            count = min(len(target) - at, FRAME - skip)
            if not skip and count == self._length(index):
                self._open(index, target[at : at + count])
            else:
                target[at : at + count] = self._at_hand(index)[skip : skip + count]
            at += count

    def _at_hand(self, index: int) -> memoryview:
        block = self._opened.pop(index, None)
        if block is None:
            full = len(self._opened) >= FRAMES_AT_HAND
            block = self._opened.popitem(last=False)[1] if full else room_for(self.size)
            self._open(index, block)
        self._opened[index] = block
        return block

    def _open(self, index: int, into: memoryview) -> None:
        frame = self._sealed[: self._length(index) + TAG]
        os.lseek(self._file.fileno(), index * (FRAME + TAG), os.SEEK_SET)
        nonce = make_nonce(self._vouched.binding.direction, index, last=index == self._last)
        if not (fill(self._file, frame) and self._opener.opens(frame, into, nonce=nonce)):
            raise Tampered(
                "frame", f"frame {index + 1} of {self._last + 1} is not the sender's own in this place"
            )
        if index == self._seen:
            self._fingerprint.add(frame)
            self._seen += 1

    def _length(self, index: int) -> int:
        return FRAME if index < self._last else self.size - self._last * FRAME


@contextmanager
def open_source(sealed: Path, *, key: ContentKey, vouched: Vouched) -> Iterator[SealedSource]:
    """A sealed file for reading at any place."""
    with sealed.open("rb", buffering=0) as file:
        yield SealedSource(file, key, vouched)


@contextmanager
def open_unverified(sealed: Path, *, key: ContentKey, vouched: Vouched) -> Iterator[SealedSource]:
    """A sealed file to be read once, in order, and found whole or refused at the end: one pass instead of two."""
    with sealed.open("rb", buffering=0) as file:
        check_size(os.fstat(file.fileno()).st_size, vouched.size)
        source = SealedSource(file, key, vouched)
        yield source
        source.check()
