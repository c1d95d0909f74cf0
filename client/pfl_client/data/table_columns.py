"""Learns what each column of a site's table holds, and what the site tells of it: names, sums, common categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pfl_client.data.declaration import FILE, Declared, Hashed
from pfl_client.data.records import is_missing, plain_name, plain_text, read_number, show_column
from pfl_common.errors import DataError
from pfl_common.spec.data_description import FEWEST_SUMMED, LONGEST_CATEGORY, MOST_CATEGORIES
from pfl_common.spec.table_schema import SeenColumn

MOST_COUNTED = 20_000
"""Categories that are counted in a column: one with more holds identifiers or free text."""


@dataclass
class Tally:
    """What was seen of one column.

    Sums are kept about the mean: of large numbers that differ little, squares alone would tell nothing.
    """

    name: str
    fewest: int
    """Samples, or patients, that a category has to occur in to be told."""
    rows: int = 0
    missing: int = 0
    texts: int = 0
    first_text: str = ""
    """Where the first cell stands that is no number, in words."""
    count: int = 0
    mean: float = 0.0
    about: float = 0.0
    owners: dict[str, set[str]] = field(default_factory=dict)
    """By category: who has it, at most `fewest` of them."""
    crowded: bool = False
    """More categories than are counted."""

    def add(self, cells: Sequence[str], owners: Sequence[str], where: Sequence[str]) -> None:
        """Some rows' cells, whose each is, and where it stands."""
        numbers: list[float] = []
        for cell, owner, place in zip(cells, owners, where, strict=True):
            self.rows += 1
            if is_missing(cell):
                self.missing += 1
                continue
            self._note(plain_text(cell), owner)
            try:
                numbers.append(read_number(cell))
            except ValueError:
                self.texts += 1
                self.first_text = self.first_text or place
        self._sum(np.array(numbers, np.float64))

    @property
    def empty(self) -> bool:
        """Whether no row has a value."""
        return self.missing == self.rows

    @property
    def is_numeric(self) -> bool:
        """Whether all cells that are there are numbers."""
        return not self.texts

    def told_categories(self) -> tuple[str, ...]:
        """Categories of enough samples or patients; none where there are too many of them."""
        if self.crowded:
            return ()
        told = [name for name, own in self.owners.items() if len(own) >= self.fewest and _tellable(name)]
        return tuple(sorted(told)) if len(told) <= MOST_CATEGORIES else ()

    def _note(self, category: str, owner: str) -> None:
        own = self.owners.get(category)
        if own is None:
            if len(self.owners) >= MOST_COUNTED:
                self.crowded = True
                return
            own = self.owners[category] = set()
        if len(own) < self.fewest:
            own.add(owner)

    def _sum(self, numbers: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        if not len(numbers):
            return
        mean = float(numbers.mean())
        about = float(((numbers - mean) ** 2).sum())
        total = self.count + len(numbers)
        apart = mean - self.mean
        self.about += about + apart * apart * self.count * len(numbers) / total
        self.mean += apart * len(numbers) / total
        self.count = total


def _tellable(name: str) -> bool:
    return len(name) <= LONGEST_CATEGORY and name.isprintable()


def conclude(tallies: Iterable[Tally], declared: Declared) -> tuple[SeenColumn, ...]:
    """What the site tells of its columns; one without any value is told as little as one that is not there."""
    said = {plain_name(name) for name in declared.categorical}
    return tuple(_tell(tally, declared, tally.name in said) for tally in tallies if not tally.empty)


def _tell(tally: Tally, declared: Declared, categorical: bool) -> SeenColumn:
    numbers = tally.rows - tally.missing - tally.texts
    if not categorical and tally.texts and numbers > tally.texts:
        raise DataError(
            f"{tally.first_text}: the cell in column {show_column(tally.name)} is no number, {numbers} others are",
            expected="numbers, or nothing where the value is missing",
            advice=f"correct it ({tally.texts} of that kind), or say in {FILE} that they are categories: "
            f'{{"categorical": ["..."]}}',
        )
    missing = tally.missing > 0
    if categorical or not tally.is_numeric:
        hashed = declared.tell_categories.hashed if isinstance(declared.tell_categories, Hashed) else 0
        told = tally.told_categories() if declared.tell_categories is True else ()
        return SeenColumn(tally.name, True, missing, categories=told, hashed=hashed)
    if not declared.tell_counts or tally.count < FEWEST_SUMMED:
        return SeenColumn(tally.name, missing=missing)
    square = tally.about + tally.count * tally.mean**2
    if not math.isfinite(square):
        return SeenColumn(tally.name, missing=missing)
    total = tally.count * tally.mean
    return SeenColumn(tally.name, missing=missing, count=tally.count, total=total, square=square)


def remark_columns(tallies: Iterable[Tally], told: Sequence[SeenColumn], declared: Declared) -> list[str]:
    """Warnings of columns that nothing can be learnt from as they are."""
    words = []
    known = {column.name: column for column in told}
    for tally in tallies:
        column = known.get(tally.name)
        if column is None:
            words.append(f"the column {show_column(tally.name)} has no value in any row")
        elif column.categorical and declared.tell_categories is True and not column.categories:
            words.append(
                f"the column {show_column(tally.name)} has no category that occurs often enough to be told "
                f"({declared.fewest_told} times): if it holds names, dates or free text, leave it out: "
                f'"leave_out" in {FILE}'
            )
    return words
