"""A digest of all files of a data folder, which depends only on their names and contents.

It never leaves the site as it is: the daemon keys it first, or a site with the same files
could tell who else has them.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from pathlib import Path


def fingerprint(files: Iterable[Path], *, below: Path) -> str:
    """The SHA-256 of the files' contents and of their names below a folder."""
    total = hashlib.sha256()
    # One spelling of accents, as everywhere: a copy made on macOS is still the same data.
    named = {unicodedata.normalize("NFC", file.relative_to(below).as_posix()): file for file in files}
    for name in sorted(named):
        total.update(f"{len(name)} {name} {_content(named[name])}\n".encode(errors="surrogateescape"))
    return total.hexdigest()


def _content(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return "unreadable"
