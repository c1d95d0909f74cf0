"""Frames of downloads on their way: what several sites fetch at the same time is read from the disk once for all."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from pfl_common.wire import convert

AT_HAND = 16
"""Frames that stay at hand: sites that begin together are never far apart."""


class SharedFrames:
    """The frames that were read last, by the digest of their file; none once nobody fetches any more."""

    def __init__(self) -> None:
        self._frames: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._fetching = 0

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """While somebody fetches."""
        self._fetching += 1
        try:
            yield
        finally:
            self._fetching -= 1
            if not self._fetching:
                self._frames.clear()

    def read(self, file: int, digest: str, at: int) -> bytes:
        """The frame of an open file that begins there; empty at its end."""
        frame = self._frames.get((digest, at))
        if frame is None:
            frame = os.pread(file, convert.FRAME_BYTES, at)
            if self._fetching > 1:
                self._frames[digest, at] = frame
                if len(self._frames) > AT_HAND:
                    self._frames.popitem(last=False)
        return frame
