"""Decides which parcels go between daemon and trainer as files to map, and which inside a message."""

from __future__ import annotations

MESSAGE_LIMIT = 4 << 20
"""Warm pages of a file cost less than a message of more bytes than this."""


def goes_as_file(size: int) -> bool:
    """Whether a parcel of so many bytes is too large for a message."""
    return size > MESSAGE_LIMIT
