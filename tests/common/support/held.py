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


class Watched(Held):
    """A parcel that remembers how many of its bytes were read, and how many at most at a time."""

    read = longest = 0

    def read_into(self, offset: int, target: memoryview) -> None:
        self.read += len(target)
        self.longest = max(self.longest, len(target))
        super().read_into(offset, target)
