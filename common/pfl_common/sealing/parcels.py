"""Seals and opens whole parcels frame by frame, with only a few frames in memory.

Nothing is handed out before all of it has verified: neither a file under its name, nor a buffer, nor the
first frame of a stream.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from pfl_common.errors import StateError
from pfl_common.files.write_all import write_at
from pfl_common.sealing.content_key import ContentKey
from pfl_common.sealing.frame_cipher import Buffer, Opener, Sealer, make_nonce
from pfl_common.sealing.frame_format import (
    FRAME,
    TAG,
    Binding,
    Tampered,
    bind,
    count_frames,
    plain_size,
    sealed_size,
)
from pfl_common.spec import digests
from pfl_common.spec.run import Header


@dataclass(frozen=True)
class Sealed:
    """A parcel just sealed. `digest` names it: for downloads the hash of the sealed bytes by the suite of its header,
    for uploads the SHA-256 of all tags.
    """

    content_key: ContentKey = field(repr=False)
    binding: Binding
    digest: str
    tags_hash: bytes
    size: int


@dataclass(frozen=True)
class Vouched:
    """The facts of a parcel under its sender's valid signature; nothing is opened without one."""

    binding: Binding
    digest: str
    size: int


class Fingerprint:
    """The hashes of a parcel while it is made; all bytes are hashed only where the signature needs it."""

    def __init__(self, binding: Binding) -> None:
        self._tags = hashlib.sha256()
        self._bytes = digests.start(binding.digests) if binding.direction == "down" else None

    def add(self, frame: memoryview) -> None:
        """One frame more, in order."""
        self._tags.update(frame[-TAG:])
        if self._bytes is not None:
            self._bytes.update(frame)

    @property
    def tags_hash(self) -> bytes:
        """SHA-256 of all tags."""
        return self._tags.digest()

    @property
    def digest(self) -> str:
        """The digest that the sender signs: of all bytes going down, of all tags going up."""
        return (self._bytes or self._tags).hexdigest()


def seal_bytes(source: Buffer, out: Path, header: Header | bytes, *, over: bool = False) -> Sealed:
    """Seal bytes into a file, under a fresh key and bound to the header; `over` as in `draft_of`."""
    view = memoryview(source).cast("B")
    blocks = (view[at : at + FRAME] for at in range(0, max(1, len(view)), FRAME))
    with draft_of(out, over=over) as file:
        return _seal(blocks, len(view), file, header)


def seal_file(source: Path, out: Path, header: Header | bytes, *, over: bool = False) -> Sealed:
    """Seal a file into another, under a fresh key and bound to the header; `over` as in `draft_of`."""
    with source.open("rb", buffering=0) as file, draft_of(out, over=over) as sealed:
        size = os.fstat(file.fileno()).st_size
        return _seal(_read_blocks(file, size, source), size, sealed, header)


def open_to_bytes(
    sealed: Path,
    *,
    key: ContentKey,
    vouched: Vouched,
    into: bytearray | memoryview | None = None,
    hashed: bool = False,
) -> memoryview:
    """The content of a parcel, in `into` if one is given, which a failure leaves zeroed.

    `hashed` says that the caller has just compared the file's hash with the signed digest itself.
    """
    plain = plain_size(vouched.size)
    # First, or a size that is a lie could ask for all memory.
    check_size(sealed.stat().st_size, vouched.size)
    target = memoryview(bytearray(plain) if into is None else into).cast("B")[:plain]
    try:
        for _ in _open(sealed, key, vouched, lambda at: target[at : at + FRAME], hashed=hashed):
            pass
    except BaseException:
        target[:] = bytes(len(target))
        raise
    return target.toreadonly()


def open_held(sealed: bytes, *, key: ContentKey, vouched: Vouched) -> memoryview:
    """The content of a parcel that is held in memory; its caller has compared its hash with the signed digest."""
    check_size(len(sealed), vouched.size)
    opener, plain = Opener(key, vouched.binding.hash), plain_size(vouched.size)
    target, view = memoryview(bytearray(plain)), memoryview(sealed)
    last = count_frames(plain) - 1
    for index in range(last + 1):
        frame = view[index * (FRAME + TAG) : (index + 1) * (FRAME + TAG)]
        nonce = make_nonce(vouched.binding.direction, index, last=index == last)
        if not opener.opens(frame, target[index * FRAME : (index + 1) * FRAME], nonce=nonce):
            target[:] = bytes(plain)
            raise _explain(opener, vouched, frame, index=index)
    return target.toreadonly()


def open_to_file(sealed: Path, out: Path, *, key: ContentKey, vouched: Vouched) -> Path:
    """The content of a parcel as a file, which has its name only once all of it has verified."""
    buffer = room_for(vouched.size)
    with draft_of(out) as file:
        for block in _open(sealed, key, vouched, lambda _: buffer):
            file.write(block)
    return out


def open_over_file(sealed: Path, out: Path, *, key: ContentKey, vouched: Vouched) -> Path:
    """The same, written over a file that may be there from the last time: its pages are warm. Gone if it fails.

    For a download whose hash the caller has just compared with the signed digest: it is not hashed once more.
    """
    buffer = room_for(vouched.size)
    try:
        with os.fdopen(open_over(out), "wb", buffering=0) as file:
            at = 0
            for block in _open(sealed, key, vouched, lambda _: buffer, hashed=True):
                write_at(file.fileno(), block, at)
                at += len(block)
            file.truncate(at)
    except BaseException:
        # Cut first: memory that two processes see has a path, but no name that could be taken away.
        with suppress(OSError):
            os.truncate(out, 0)
            out.unlink()
        raise
    return out


def check_whole(sealed: Path, *, key: ContentKey, vouched: Vouched) -> None:
    """Refuse a parcel that is not, to its last byte, what its sender signed."""
    buffer = room_for(vouched.size)
    for _ in _open(sealed, key, vouched, lambda _: buffer):
        pass


def check_frames(sealed: Path, *, key: ContentKey, vouched: Vouched, start: int = 0) -> int:
    """How far a file that is still growing is genuine, from `start`, the end of an earlier check, on."""
    opener = Opener(key, vouched.binding.hash)
    buffer, content = room_for(vouched.size, TAG), room_for(vouched.size)
    index, beyond = divmod(start, FRAME + TAG)
    if beyond and start != vouched.size:
        raise ValueError(f"a start of {start}; expected: the end of a frame")
    at = start
    with sealed.open("rb", buffering=0) as file:
        file.seek(start)
        while at < vouched.size:
            frame = buffer[: min(FRAME + TAG, vouched.size - at)]
            nonce = make_nonce(vouched.binding.direction, index, last=at + len(frame) == vouched.size)
            if not (fill(file, frame) and opener.opens(frame, content, nonce=nonce)):
                break
            index, at = index + 1, at + len(frame)
    return at


def _seal(blocks: Iterator[memoryview], size: int, file: BinaryIO, header: Header | bytes) -> Sealed:
    binding = bind(header)
    sealer, fingerprint = Sealer(binding), Fingerprint(binding)
    buffer = room_for(size, TAG)
    last = count_frames(size) - 1
    for index, block in enumerate(blocks):
        frame = sealer.seal(block, buffer, last=index == last)
        fingerprint.add(frame)
        file.write(frame)
    return Sealed(sealer.key, binding, fingerprint.digest, fingerprint.tags_hash, sealed_size(size))


def _open(
    sealed: Path,
    key: ContentKey,
    vouched: Vouched,
    place: Callable[[int], memoryview],
    *,
    hashed: bool = False,
) -> Iterator[memoryview]:
    """Open frame after frame into the `place` for its position; what comes out is good only at the end."""
    opener = Opener(key, vouched.binding.hash)
    fingerprint = None if hashed else Fingerprint(vouched.binding)
    buffer = room_for(vouched.size, TAG)
    last = count_frames(plain_size(vouched.size)) - 1
    with sealed.open("rb", buffering=0) as file:
        check_size(os.fstat(file.fileno()).st_size, vouched.size)
        for index in range(last + 1):
            frame = buffer[: min(FRAME + TAG, vouched.size - index * (FRAME + TAG))]
            if not fill(file, frame):
                raise Tampered("truncated", f"the file ended in frame {index + 1} of {last + 1}")
            block = place(index * FRAME)[: len(frame) - TAG]
            nonce = make_nonce(vouched.binding.direction, index, last=index == last)
            if not opener.opens(frame, block, nonce=nonce):
                raise _explain(opener, vouched, frame, index=index)
            if fingerprint is not None:
                fingerprint.add(frame)
            yield block
    if fingerprint is not None:
        compare(fingerprint, vouched)


def open_over(file: Path) -> int:
    """Open a private file to be written from its beginning on, over what may lie there."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)


def room_for(size: int, beside: int = 0) -> memoryview:
    """Memory for a frame of something so long, and for a few bytes beside: fresh memory costs more than to fill it."""
    return memoryview(bytearray(min(FRAME, size) + beside))


def compare(fingerprint: Fingerprint, vouched: Vouched) -> None:
    """Refuse bytes that are not those whose digest was signed."""
    if fingerprint.digest != vouched.digest:
        raise Tampered(
            "signature", f"bytes of digest {fingerprint.digest}; expected: the signed {vouched.digest}"
        )


def check_size(seen: int, signed: int) -> None:
    """Refuse a file that is shorter or longer than what was signed."""
    if seen < signed:
        raise Tampered("truncated", f"{seen} bytes; expected: {signed}; ask for the rest")
    if seen > signed:
        raise Tampered("size", f"{seen} bytes; expected: {signed}, as signed")


def _explain(opener: Opener, vouched: Vouched, frame: memoryview, *, index: int) -> Tampered:
    """Whether a frame that does not open here belongs elsewhere in the parcel or nowhere."""
    scratch = memoryview(bytearray(FRAME))
    count = count_frames(plain_size(vouched.size))
    for other, last in itertools.product(range(count), (False, True)):
        if not opener.opens(frame, scratch, nonce=make_nonce(vouched.binding.direction, other, last=last)):
            continue
        if other != index:
            return Tampered("order", f"frame {other + 1} in place of frame {index + 1} of {count}")
        if last:
            return Tampered("size", f"the parcel ends with frame {other + 1}; expected: {count} frames")
        return Tampered("truncated", f"the parcel goes on after frame {other + 1} of {count}")
    return Tampered("frame", f"frame {index + 1} of {count} is not genuine; expected: the sender's own bytes")


def _read_blocks(file: FileIO, size: int, source: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(FRAME))
    for at in range(0, max(1, size), FRAME):
        block = buffer[: min(FRAME, size - at)]
        if not fill(file, block):
            raise _changed(source, size)
        yield block
    if file.read(1):
        raise _changed(source, size)


def fill(file: FileIO, block: memoryview) -> bool:
    """Read until the block is full; a raw file may give less at a time."""
    at = 0
    while at < len(block):
        count = file.readinto(block[at:])
        if not count:
            return False
        at += count
    return True


def _changed(source: Path, size: int) -> StateError:
    return StateError(
        f"{source} changed while it was being sealed",
        expected=f"its {size} bytes to stay as they are",
        advice="look for a second program that writes into the state folder",
    )


@contextmanager
def draft_of(out: Path, *, over: bool = False) -> Iterator[BinaryIO]:
    """A private file that gets its name when it is complete, and is gone otherwise.

    With `over` it has its name from the beginning, and what lies there is written over: its pages are warm. Nobody may
    take what is there for whole before its maker says so.
    """
    draft = out if over else out.with_name(f".{out.name}.{secrets.token_hex(8)}.draft")
    # Not synced: after a power loss a parcel that is torn no longer verifies, and is asked for again.
    try:
        with os.fdopen(open_over(draft), "wb") as file:
            yield file
            file.truncate()
        if not over:
            os.replace(draft, out)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
