"""A file that is being downloaded: keeps count of its bytes, also when it overwrites an older file. Torch-free.

Beside a file that is written over lies a note of how far that is; without one, its length says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pfl_common.files.recycler import Blanks
from pfl_common.files.write_all import write_at
from pfl_common.spec import digests
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.messages import Blob

_BLOCK = 1 << 20
_NOTE_BYTES = 8


def lay(blanks: Blanks, file: Path, size: int) -> None:
    """Begin a file of `size` bytes by overwriting an old one, if there is one."""
    if file.exists() or not blanks.has_one_for(size):
        return
    # The note first: a kill between the two must not leave a file whose length says that all is there.
    note = _note_of(file)
    note.write_bytes(bytes(_NOTE_BYTES))
    if not blanks.lay(file, size):
        note.unlink()


def reached(file: Path) -> int:
    """The number of bytes of a file that have arrived."""
    with suppress(FileNotFoundError):
        size = file.stat().st_size
        with suppress(FileNotFoundError):
            return min(size, int.from_bytes(_note_of(file).read_bytes(), "little"))
        return size
    return 0


def forget(file: Path) -> None:
    """Take a file away, whole or not."""
    for path in (file, _note_of(file)):
        path.unlink(missing_ok=True)


class Arriving:
    """A file in transfer, hashed as it grows so that it need not be read again at the end."""

    def __init__(self, into: Path, blob: Blob, by: Digests = FIRST) -> None:
        self.blob, self._into = blob, into
        if into.exists() and into.stat().st_size > blob.size:
            forget(into)  # what is too long cannot be its beginning
        into.touch()
        self._hash, self.at = digests.start(by), 0
        with into.open("rb", buffering=0) as file:
            end = reached(into)
            while block := file.read(min(_BLOCK, end - self.at)):
                self._hash.update(block)
                self.at += len(block)

    @property
    def whole(self) -> bool:
        """Whether the bytes are those that were announced."""
        return self._hash.hexdigest() == self.blob.digest

    @contextmanager
    def opened(self) -> Iterator[Callable[[bytes], None]]:
        """Takes frames in their order; each is in the file, safe from a kill, before the next one is read."""
        note = _note_of(self._into)
        over = note.exists()
        with self._into.open("r+b", buffering=0) as file, (note if over else self._into).open("r+b") as told:

            def take(frame: bytes) -> None:
                write_at(file.fileno(), frame, self.at)
                self._hash.update(frame)
                self.at += len(frame)
                if over:
                    write_at(told.fileno(), self.at.to_bytes(_NOTE_BYTES, "little"), 0)

            yield take

    def settle(self) -> None:
        """All of it is there: its length says so."""
        _note_of(self._into).unlink(missing_ok=True)

    def throw_away(self) -> None:
        """Other bytes than announced are of no use."""
        forget(self._into)


def _note_of(file: Path) -> Path:
    return file.with_name(file.name + ".came")
