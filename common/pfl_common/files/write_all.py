"""Writes all bytes at a place of a file; the system may take fewer at a time."""

from __future__ import annotations

import os


def write_at(file: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` into an open file from `offset` on, straight from its memory."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written
