"""Memory for one parcel at a time, used again and again: fresh pages cost more time than all that is done with them."""

from __future__ import annotations


class Pool:
    """What was taken is overwritten by the next taking; whoever still needs it has to be done with it."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self, size: int) -> memoryview:
        """Room for so many bytes, with whatever was there before."""
        if len(self._memory) < size:
            self._memory = bytearray()  # first let go: two generations of it would be one too many
            self._memory = bytearray(size)
        return memoryview(self._memory)[:size]

    def drop(self) -> None:
        """Give the memory back: an idle site is a small one."""
        self._memory = bytearray()
