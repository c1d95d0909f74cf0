"""A digest of all files of a data folder, which depends only on their names and contents.

It never leaves the site as it is: the daemon keys it first, or a site with the same files
could tell who else has them.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

UNREADABLE = "unreadable"


def fingerprint(files: Iterable[Path], *, below: Path) -> str:
    """The SHA-256 of the files' contents and of their names below a folder."""
    return combine(digest_files(files), below=below)


def digest_files(files: Iterable[Path]) -> dict[Path, str]:
    """The SHA-256 of each file; `UNREADABLE` of one that cannot be read."""
    return {file: _content(file) for file in files}


def combine(digests: Mapping[Path, str], *, below: Path) -> str:
    """The fingerprint of files whose contents are hashed already."""
    total = hashlib.sha256()
    # One spelling of accents, as everywhere: a copy made on macOS is still the same data.
    named = {unicodedata.normalize("NFC", file.relative_to(below).as_posix()): file for file in digests}
    for name in sorted(named):
        total.update(f"{len(name)} {name} {digests[named[name]]}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


def _content(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return UNREADABLE
