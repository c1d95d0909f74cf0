"""The results of examining a data folder, for its owner only: they may name files and never go into a log or a call."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pfl_common.errors import DataError
from pfl_common.spec.run import Description

KIND_OF_VALUES = {
    "bytes": "pictures of 8 bits",
    "wide": "pictures of 16 bits",
    "unit": "pictures of floats from 0 to 1",
    "byte_floats": "pictures of floats from 0 to 255",
    "signed": "pictures of other floats",
    "numbers": "numbers that are no pictures",
}
_KINDS = {
    "tokens": "texts of {} words",
    "windows": "windows of sensors, {} (channels x time)",
    "table": "a table of {} columns",
}
"""What other data than pictures and plain numbers are called, with the shape of a sample."""


@dataclass(frozen=True)
class BadFile:
    """A file that cannot be read, and its position, which logs and calls may name."""

    position: str
    path: Path
    why: str
    denied: bool = False

    @property
    def shown(self) -> str:
        """Its name for a terminal; bytes that are no text as their numbers."""
        return show(self.path)

    def digest(self) -> str:
        """The first digits of `sha256sum`, to find it again by what a log says; empty if it cannot be read at all."""
        try:
            with self.path.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()[:8]
        except OSError:
            return ""


@dataclass(frozen=True)
class Findings:
    """The results for one data folder, examined from end to end."""

    layout: str
    """How the folder is arranged, in words."""
    description: Description | None = None
    """What the site would say of it; None: the folder cannot be used, `error` says why."""
    counts: Mapping[str, Counter[str]] = field(default_factory=dict)
    """Samples by part and class."""
    unreadable: tuple[BadFile, ...] = ()
    warnings: tuple[str, ...] = ()
    told: str = ""
    """What of its columns or words would leave the site, in words."""
    error: DataError | None = None

    @property
    def recognised(self) -> str:
        """The recognised kind of the samples, in words."""
        return "nothing" if self.description is None else recognise(self.description)


def recognise(description: Description) -> str:
    """The recognised kind of a site's samples, in words for its log."""
    shape = "x".join(map(str, description.shape))
    low, high = description.low, description.high
    values = f", values {low:g}..{high:g}" if description.values != "bytes" and low < high else ""
    order = " (channels x height x width)" if description.kind == "image" else ""
    plain = f"{KIND_OF_VALUES[description.values]}, {{}}{order}"
    kind = _KINDS.get(description.kind, plain).format(shape)
    return f"{kind}{values}{_tell_numbering(description)}"


def _tell_numbering(description: Description) -> str:
    return {
        "": "",
        "words": f", numbered by a list of {len(description.words)} words, which is told",
        "withheld": ", numbered by a list of words, which is not told",
        "hashed": f", numbered by hashes of the words, {description.tokens} numbers",
        "numbers": f", {description.tokens} numbers, of which nothing else is known",
    }[description.numbering]


def show(path: Path) -> str:
    """A path that any terminal can show."""
    return str(path).encode(errors="backslashreplace").decode()
