"""An update that is opened and checked while it comes: what was just received need not be read again."""

from __future__ import annotations

from pfl_common.errors import Refused
from pfl_common.tensors.update_check import Check
from pfl_server.envelopes import Arriving


class ArrivingUpdate:
    """The check of one upload; what it says is good only if all of it came by here.

    It refuses nothing: whatever does not fit ends it, and what that was is found when the whole is read from its file.
    """

    def __init__(self, frames: Arriving, check: Check) -> None:
        self._frames, self._check = frames, check
        self._scratch, self._over = memoryview(b""), False

    def take(self, at: int, frame: bytes) -> None:
        """Bytes that came, and where they belong."""
        if self._over:
            return
        try:
            content = self._frames.open(at, frame, self._room)
            self._over = content is None
            if content is not None:
                self._give(content)
        except Refused:
            self._over = True

    def find_change(self) -> float | None:
        """The norm of its change; None if all of it has to be read."""
        if self._over or not self._frames.whole:
            return None
        try:
            return self._check.finish()
        except Refused:
            return None

    def _room(self, count: int) -> memoryview:
        """Where the check wants its next bytes, if there is room for all of these: mostly a frame is a block of it."""
        wanted = self._check.wanted
        if len(wanted) >= count:
            return wanted[:count]
        if len(self._scratch) < count:
            self._scratch = memoryview(bytearray(count))
        return self._scratch[:count]

    def _give(self, content: memoryview) -> None:
        if content.obj is not self._scratch.obj:
            self._check.advance(len(content))
            return
        while content:
            wanted = self._check.wanted
            count = min(len(wanted), len(content))
            wanted[:count] = content[:count]
            self._check.advance(count)
            content = content[count:]
