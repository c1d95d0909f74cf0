"""Learns what each column of a site's table holds, and what the site tells of it: names, sums, common categories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from pfl_client.data.declaration import FILE, Declared, Hashed
from pfl_client.data.records import is_missing, plain_name, plain_text, read_numbers, show_column
from pfl_common.errors import DataError
from pfl_common.printable import is_printable
from pfl_common.spec.data_description import FEWEST_SUMMED, LONGEST_CATEGORY, MOST_CATEGORIES
from pfl_common.spec.table_schema import SeenColumn

MOST_COUNTED = 20_000
"""Categories that are counted in a column: one with more holds identifiers or free text."""
FEW, ROWS_EACH = 12, 10
"""More than a few categories with fewer rows each than that, on average, may be names of patients who came often."""

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass
class Tally:
    """What was seen of one column.

    Sums are kept about the mean: of large numbers that differ little, squares alone would tell nothing.
    """

    name: str
    rows: int = 0
    missing: int = 0
    texts: int = 0
    first_text: str = ""
    """Where the first cell stands that is no number, in words."""
    count: int = 0
    mean: float = 0.0
    about: float = 0.0

    def add(self, cells: Sequence[str], lines: Sequence[int], *, called: str) -> None:
        """Some rows' cells, and where they stand."""
        values, bad = read_numbers(cells)
        numbers = values[~np.isnan(values)]
        self.rows += len(cells)
        self.missing += len(cells) - len(numbers) - len(bad)
        self.texts += len(bad)
        if bad and not self.first_text:
            self.first_text = f"{called}, line {lines[min(bad)]}"
        self._sum(numbers)

    @property
    def empty(self) -> bool:
        """Whether no row has a value."""
        return self.missing == self.rows

    def holds_categories(self, declared: Declared) -> bool:
        """Whether its cells are names; a text among numbers is an error, unless data.json says that they are names."""
        if self.name in map(plain_name, declared.categorical):
            return True
        if self.texts and self.count > self.texts:
            raise DataError(
                f"{self.first_text}: the cell in column {show_column(self.name)} is no number, {self.count} others are",
                expected="numbers, or nothing where the value is missing",
                advice=f"correct it ({self.texts} of that kind), or say in {FILE} that they are categories: "
                f'{{"categorical": ["..."]}}',
            )
        return self.texts > 0

    def _sum(self, numbers: Floats) -> None:
        if not len(numbers):
            return
        mean = float(numbers.mean())
        about = float(((numbers - mean) ** 2).sum())
        total, apart = self.count + len(numbers), mean - self.mean
        self.about += about + apart * apart * self.count * len(numbers) / total
        self.mean += apart * len(numbers) / total
        self.count = total


@dataclass
class Categories:
    """Who has each category of a column, as far as it has to be known: no more than `fewest` samples or patients."""

    fewest: int
    owners: dict[str, set[str]] = field(default_factory=dict)
    rows: int = 0
    crowded: bool = False
    """More categories than are counted; none is kept then."""

    def add(self, cells: Sequence[str], owners: Sequence[str]) -> None:
        """Some rows' cells, and whose each is."""
        for cell, owner in zip(cells, owners, strict=True):
            if self.crowded or is_missing(cell):
                continue
            self.rows += 1
            own = self.owners.setdefault(plain_text(cell), set())
            if len(own) < self.fewest:
                own.add(owner)
            if len(self.owners) > MOST_COUNTED:
                self.crowded, self.owners = True, {}

    @property
    def told(self) -> tuple[str, ...]:
        """Those of enough samples or patients; none where there are so many that they may be identifiers."""
        if len(self.owners) > max(FEW, self.rows / ROWS_EACH):
            return ()
        told = [name for name, own in self.owners.items() if len(own) >= self.fewest and _tellable(name)]
        return tuple(sorted(told)) if len(told) <= MOST_CATEGORIES else ()


def _tellable(name: str) -> bool:
    return len(name) <= LONGEST_CATEGORY and is_printable(name)


def conclude(
    tallies: Iterable[Tally], categories: Mapping[str, Categories], declared: Declared
) -> tuple[SeenColumn, ...]:
    """What the site tells of its columns; one without any value is told as little as one that is not there."""
    return tuple(_tell(tally, categories, declared) for tally in tallies if not tally.empty)


def _tell(tally: Tally, categories: Mapping[str, Categories], declared: Declared) -> SeenColumn:
    missing = tally.missing > 0
    if tally.holds_categories(declared):
        hashed = declared.tell_categories.hashed if isinstance(declared.tell_categories, Hashed) else 0
        told = categories[tally.name].told if tally.name in categories else ()
        return SeenColumn(tally.name, True, missing, categories=told, hashed=hashed)
    total, square = tally.count * tally.mean, tally.about + tally.count * tally.mean**2
    if not declared.tell_counts or tally.count < FEWEST_SUMMED or not math.isfinite(square):
        return SeenColumn(tally.name, missing=missing)
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
