"""Large files nobody needs any more, kept to be written over: fresh pages on a disk cost five times what warm ones do.

What a blank holds is of no meaning. Whoever writes over one must know by other means than its length how far they are.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

WORTH = 1 << 20
"""A smaller file costs no more to make than to keep."""


class Blanks:
    """A folder of such files, up to so many bytes of them; those of an earlier process are thrown away."""

    def __init__(self, folder: Path, *, most: int) -> None:
        self._folder, self._most = folder, most
        self._held: list[tuple[Path, int]] = []
        self._number = 0
        shutil.rmtree(folder, ignore_errors=True)

    def give(self, file: Path) -> bool:
        """Take a file in, whose name is free then; False if it is too small, or there are enough."""
        size = file.stat().st_size
        if size < WORTH or sum(held for _, held in self._held) + size > self._most:
            return False
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._number += 1
        blank = self._folder / f"{self._number}"
        os.replace(file, blank)
        self._held.append((blank, size))
        return True

    def lay(self, into: Path, size: int) -> bool:
        """Put a blank, no longer than this, where a file of so many bytes is about to be written."""
        if size < WORTH or not self._held:
            return False
        blank, held = self._held.pop()
        with suppress(OSError):  # somebody has cleaned up by hand: then a file is made anew
            if held > size:
                os.truncate(blank, size)
            os.replace(blank, into)
            return True
        return False

    def clear(self) -> None:
        """Give all their room back."""
        self._held.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
