"""Divides the images of a site that has not done so: three quarters of each class to train on, one quarter to test.

Each file's part is drawn from the site's and the file's own name, never from a run's seed: a division that
changed with the run would put this run's test images into the next run's training. A new file moves no other,
but in a class so small that all its draws fall on one side: one file is put on the other side, and a new file
can change which.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from pfl_common.randomness import hashed

TEST_SHARE = 0.25

Labelled: TypeAlias = tuple[str, Path]


def divide(files: Iterable[Labelled], site: str) -> tuple[list[Labelled], list[Labelled]]:
    """Divide the files, sorted by class, into those for training and those for testing."""
    train: list[Labelled] = []
    test: list[Labelled] = []
    for label, members in groupby(files, key=lambda file: file[0]):
        own = list(members)
        held = _held_out({path: _draw(site, label, path) for _, path in own})
        train += [file for file in own if file[1] not in held]
        test += [file for file in own if file[1] in held]
    return train, test


def _draw(site: str, label: str, path: Path) -> float:
    # A name of bytes that are no text has signs that cannot be encoded: they are written out.
    name = unicodedata.normalize("NFC", path.name).encode(errors="backslashreplace").decode()
    return hashed.uniform(site, "split", label, name)


def _held_out(drawn: dict[Path, float]) -> set[Path]:
    held = {path for path, draw in drawn.items() if draw < TEST_SHARE}
    if len(drawn) > 1 and not held:
        held = {min(drawn, key=drawn.__getitem__)}
    elif held == drawn.keys():
        # Also a class of one file: training without it would be a class nobody learns.
        held.remove(max(drawn, key=drawn.__getitem__))
    return held
