"""The hash by which a run's downloads and checkpoints are known: the run's specification says which of two. Torch-free.

What goes up is known by the hash of its frames' tags, which is SHA-256 in every run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

from blake3 import blake3

Digests: TypeAlias = Literal["sha256", "blake3"]
DIGESTS: tuple[Digests, ...] = get_args(Digests)
FIRST: Digests = "sha256"
"""What a specification and a header mean that do not say it: those of runs begun before there was another."""
NEWEST: Digests = "blake3"
"""What runs are begun with: of large parcels it takes a third of the time."""


class Hash(Protocol):
    """A hash in progress; both give 32 bytes."""

    def update(self, content: bytes | bytearray | memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """The hash of what came so far, as 64 digits."""


def start(by: Digests) -> Hash:
    """A hash of nothing yet."""
    return blake3() if by == "blake3" else hashlib.sha256()


def digest_of(content: bytes, by: Digests) -> str:
    """The hash of some bytes."""
    hashed = start(by)
    hashed.update(content)
    return hashed.hexdigest()


def digest_of_file(file: Path, by: Digests) -> str:
    """The hash of a file, read once in blocks."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: start(by)).hexdigest()  # type: ignore[arg-type, return-value]  # typeshed asks for more than is used
