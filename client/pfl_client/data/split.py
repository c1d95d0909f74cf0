"""Divides the images of a site that has not done so: three quarters of each class to train on, one quarter to test.

Each file's part is drawn from the site's and the file's own name, never from a run's seed: a division that
changed with the run would put this run's test images into the next run's training. A new file moves no other,
but in a class so small that all its draws fall on one side: one file is put on the other side, and a new file
can change which. Files of one group are drawn together, by the group's name.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeVar

from pfl_common.randomness import seeded_draws

TEST_SHARE = 0.25


class Divisible(Protocol):
    """A sample as far as its part is drawn from it: a picture, or a row of a file."""

    @property
    def label(self) -> str:
        """Its class."""

    @property
    def name(self) -> str:
        """What it is drawn from."""

    @property
    def group(self) -> str:
        """What it belongs to; empty: to nothing else."""

    @property
    def unit(self) -> str:
        """What may not be torn apart."""


T = TypeVar("T", bound=Divisible)


def divide(pictures: Sequence[T], site: str) -> tuple[list[T], list[T]]:
    """Divide samples, keeping their order, into those for training and those for testing."""
    held = _hold_groups(pictures, site) if any(one.group for one in pictures) else _hold_files(pictures, site)
    return [one for one in pictures if one not in held], [one for one in pictures if one in held]


def _hold_files(pictures: Sequence[T], site: str) -> set[T]:
    classes: dict[str, dict[T, float]] = defaultdict(dict)
    for one in pictures:
        classes[one.label][one] = _draw(site, one.label, one.name)
    return {one for drawn in classes.values() for one in _held_out(drawn)}


def _draw(site: str, label: str, name: str) -> float:
    return seeded_draws.uniform(site, "split", label, _writable(name))


def _writable(name: str) -> str:
    """One spelling of accents; signs of a name that is no text, which cannot be encoded, are written out."""
    return unicodedata.normalize("NFC", name).encode(errors="backslashreplace").decode()


def _held_out(drawn: dict[T, float]) -> set[T]:
    held = {path for path, draw in drawn.items() if draw < TEST_SHARE}
    if len(drawn) > 1 and not held:
        held = {min(drawn, key=drawn.__getitem__)}
    elif held == drawn.keys():
        # Also a class of one file: training without it would be a class nobody learns.
        held.remove(max(drawn, key=drawn.__getitem__))
    return held


def _hold_groups(pictures: Sequence[T], site: str) -> set[T]:
    """A quarter of the groups. A class has one in training, and one in the test if that costs no class its training."""
    classes: dict[str, set[str]] = defaultdict(set)
    for one in pictures:
        classes[one.label].add(one.unit)
    units = sorted(set().union(*classes.values()))
    drawn = {unit: seeded_draws.uniform(site, "split by groups", _writable(unit)) for unit in units}
    held = {unit for unit, draw in drawn.items() if draw < TEST_SHARE}
    for own in _in_order(classes, drawn):
        if held >= set(own):
            held.remove(own[-1])
    for own in _in_order(classes, drawn):
        if not held & set(own):
            free = (unit for unit in own if _leaves_training(held | {unit}, classes))
            held |= set(islice(free, 1))
    return {one for one in pictures if one.unit in held}


def _in_order(classes: Mapping[str, set[str]], drawn: Mapping[str, float]) -> list[list[str]]:
    """The groups of each class by their draws."""
    return [sorted(classes[label], key=lambda unit: (drawn[unit], unit)) for label in sorted(classes)]


def _leaves_training(held: set[str], classes: Mapping[str, set[str]]) -> bool:
    return not any(held >= own for own in classes.values())
