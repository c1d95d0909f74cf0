"""Warns of samples that are in two parts: a score on what was trained on says nothing. Compared by hashes of contents.

What may be logged are counts and positions; a group's name, which may be a patient's, is never among them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pfl_client.data.fingerprint import UNREADABLE
from pfl_client.data.forms import Column
from pfl_client.data.picture import Picture

FIRST_PARTS = ("train", "validation")
"""What is in one of these, models are made by."""

Marked: TypeAlias = Mapping[str, Sequence[tuple[Hashable, str]]]
"""By part: for each sample its content or group, and its position in words."""


def warn_of_equal_files(parts: Mapping[str, Sequence[Picture]], digests: Mapping[Path, str]) -> list[str]:
    """Warnings of equal pictures in two parts, and of equal ones in two classes; `digests` by path."""
    marked = {
        part: [(digests[one.path], one.position) for one in own if digests[one.path] != UNREADABLE]
        for part, own in parts.items()
    }
    every = [one for own in parts.values() for one in own]
    return [*_warn(marked, "files", "equal to one"), *_warn_of_labels(every, digests)]


def warn_of_groups(parts: Mapping[str, Sequence[Picture]]) -> list[str]:
    """Warnings of groups that a site has put into two parts."""
    marked = {part: [(one.group, one.position) for one in own if one.group] for part, own in parts.items()}
    return _warn(marked, "pictures", "of the same patient or group as one")


def warn_of_equal_samples(parts: Mapping[str, Column]) -> list[str]:
    """Warnings of equal samples in two parts of arrays."""
    marked = {
        part: [(digest, f"sample {place} of {part}.npz") for place, digest in enumerate(_digest(x), start=1)]
        for part, x in parts.items()
    }
    return _warn(marked, "samples", "equal to one")


def _digest(x: Column) -> Iterator[bytes]:
    for sample in np.ascontiguousarray(x):
        yield hashlib.blake2b(sample.tobytes(), digest_size=16).digest()


def _warn(marked: Marked, what: str, how: str) -> list[str]:
    """One warning for each two parts that share something, the one that models are made by first."""
    warnings = []
    for place, first in enumerate(marked):
        seen = dict(reversed(marked[first]))
        for second in list(marked)[place + 1 :] if first in FIRST_PARTS else ():
            again = [(mark, position) for mark, position in marked[second] if mark in seen]
            if again:
                mark, position = again[0]
                warnings.append(
                    f"{len(again)} of {len(marked[second])} {what} of {second} are {how} of {first}, such as "
                    f"{position} and {seen[mark]}: scores on {second} are better than on new data"
                )
    return warnings


def _warn_of_labels(pictures: Iterable[Picture], digests: Mapping[Path, str]) -> list[str]:
    first: dict[str, Picture] = {}
    torn: list[tuple[Picture, Picture]] = []
    for one in pictures:
        digest = digests[one.path]
        if digest != UNREADABLE and first.setdefault(digest, one).label != one.label:
            torn.append((first[digest], one))
    if not torn:
        return []
    left, right = torn[0]
    return [
        f"{len(torn)} files have another class than a file equal to them, such as {left.position} and {right.position}"
    ]
