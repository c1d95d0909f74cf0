"""Opens the frames of a parcel as they come over the line, while what was just hashed or written is still at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pfl_common.files.write_all import write_at
from pfl_common.sealing.content_key import ContentKey
from pfl_common.sealing.frame_cipher import Opener, make_nonce
from pfl_common.sealing.frame_format import FRAME, TAG, count_frames, plain_size
from pfl_common.sealing.parcels import Fingerprint, Vouched, open_over


class _NextFrame:
    """Opens frame after frame; whatever is not just the next one is left alone, and with it all that follows."""

    def __init__(self, key: ContentKey, vouched: Vouched) -> None:
        self._opener, self._vouched = Opener(key, vouched.binding.hash), vouched
        self.size = plain_size(vouched.size)
        self._last, self.index = count_frames(self.size) - 1, 0

    @property
    def complete(self) -> bool:
        """Whether every frame was opened."""
        return self.index > self._last

    def open(self, at: int, frame: bytes, room: Callable[[int], memoryview]) -> memoryview | None:
        """The content of a frame that begins there, in room of just its size; None if it is not the next one."""
        if at != self.index * (FRAME + TAG) or len(frame) != min(FRAME + TAG, self._vouched.size - at):
            return None
        into = room(len(frame) - TAG)
        last = self.index == self._last
        nonce = make_nonce(self._vouched.binding.direction, self.index, last=last)
        if not self._opener.opens(frame, into, nonce=nonce):
            return None
        self.index += 1
        return into


class EarlyOpener:
    """Opens a download as it comes, into memory of its size, or over a file that may be there from the last time.

    What it has opened is good only when its caller has compared all that came with the signed digest.
    """

    def __init__(self, out: Path | memoryview, *, key: ContentKey, vouched: Vouched) -> None:
        self._next = _NextFrame(key, vouched)
        self._memory = out if isinstance(out, memoryview) else None
        self._file = -1 if isinstance(out, memoryview) else open_over(out)
        self._buffer = memoryview(bytearray(FRAME if self._memory is None else 0))

    def take(self, at: int, frame: bytes, /) -> None:
        """Open the next frame."""
        if at == 0:
            self._next.index = 0
        content = self._next.open(at, frame, self._room)
        if content is not None and self._memory is None:
            write_at(self._file, content, (self._next.index - 1) * FRAME)

    def close(self) -> bool:
        """No more comes; whether every frame was opened."""
        if self._memory is None:
            try:
                if self._next.complete:
                    os.ftruncate(self._file, self._next.size)
            finally:
                os.close(self._file)
        return self._next.complete

    def _room(self, count: int) -> memoryview:
        if self._memory is None:
            return self._buffer[:count]
        start = self._next.index * FRAME
        return self._memory[start : start + count]


class ArrivingFrames:
    """Opens an upload as it comes, and says at the end whether that was what its sender signed."""

    def __init__(self, *, key: ContentKey, vouched: Vouched) -> None:
        self._next, self._vouched = _NextFrame(key, vouched), vouched
        self._fingerprint = Fingerprint(vouched.binding)

    def open(self, at: int, frame: bytes, room: Callable[[int], memoryview]) -> memoryview | None:
        """The content of a frame that begins there, in room of just its size; None if it is not the next one."""
        content = self._next.open(at, frame, room)
        if content is not None:
            self._fingerprint.add(memoryview(frame))
        return content

    @property
    def whole(self) -> bool:
        """Whether all of it came, frame after frame, as it was signed."""
        return self._next.complete and self._fingerprint.digest == self._vouched.digest
