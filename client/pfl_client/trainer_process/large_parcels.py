"""Decides which parcels go between daemon and trainer as files to map, and which inside a message."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MESSAGE_LIMIT = 4 << 20
"""Warm pages of a file cost less than a message of more bytes than this."""


def goes_as_file(size: int) -> bool:
    """Whether a parcel of so many bytes is too large for a message."""
    return size > MESSAGE_LIMIT


def lies_in_memory(place: Path) -> bool:
    """Whether a place for a parcel is memory that daemon and trainer share, and no file."""
    with suppress(OSError):
        return os.readlink(place).startswith("/memfd:")
    return False
