"""A parcel in memory, for tests that need no file."""

from __future__ import annotations


class Held:
    """A parcel that is in memory."""

    def __init__(self, content: bytes | bytearray | memoryview) -> None:
        self._content = memoryview(content)

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return len(self._content)

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy a part."""
        target[:] = self._content[offset : offset + len(target)]
