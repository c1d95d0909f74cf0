"""Memory for one parcel at a time, reused because touching fresh pages costs more than the work in them."""

from __future__ import annotations


class Pool:
    """A reusable buffer. Each `take` invalidates the view the last one returned."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self, size: int) -> memoryview:
        """Room for `size` bytes; their previous content is still in them."""
        if len(self._memory) < size:
            self._memory = bytearray()  # first let go: two generations of it would be one too many
            self._memory = bytearray(size)
        return memoryview(self._memory)[:size]

    def drop(self) -> None:
        """Give the memory back: an idle site is a small one."""
        self._memory = bytearray()
