"""The columns of tables: as each site describes its own, and as the run agreed on them.

A row becomes numbers, column by column. A column of numbers gives its value less the mean by the deviation, and 0
(the mean) where it is missing. A column of categories gives a 1 in the place of the cell's category, or in the last of
its places, which is for every other one. If values can be missing, one more place is 1 where this one is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class SeenColumn:
    """A column as one site describes it, of its training rows."""

    name: str
    categorical: bool = False
    missing: bool = False
    """Whether a row lacks it."""
    count: int = 0
    """Numbers in the sums; 0: the site tells no sums."""
    total: float = 0.0
    square: float = 0.0
    categories: tuple[str, ...] = ()
    """Those that the site tells."""
    hashed: int = 0
    """The site wants categories known by their hashes, in so many places; 0: by their names."""


@dataclass(frozen=True)
class Column:
    """A column as all sites of a run read it."""

    name: str
    categorical: bool = False
    missing: bool = False
    """Whether missing values have a place of their own."""
    mean: float = 0.0
    deviation: float = 1.0
    categories: tuple[str, ...] = ()
    hashed: int = 0

    @property
    def width(self) -> int:
        """The numbers that a cell becomes."""
        values = (self.hashed or len(self.categories)) + 1 if self.categorical else 1
        return values + self.missing


def count_width(columns: Iterable[Column]) -> int:
    """The numbers that a row becomes."""
    return sum(column.width for column in columns)
