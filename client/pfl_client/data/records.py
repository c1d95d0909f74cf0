"""Rows with named columns, and the one form that cells of all file formats are brought to.

Every cell becomes text, so that one table gives the same samples in every format: stripped, empty where it is missing,
a whole number without a point. Errors name line and column, never what a cell holds.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pfl_common.errors import DataError, nearest
from pfl_common.spec.data_description import LARGEST_NUMBER, LONGEST_COLUMN, MOST_COLUMNS

LONGEST_CELL = 131_072
"""Letters of a cell, which is the limit of Python's own csv too."""
WHOLE = 2.0**53
"""Up to here every whole number is a float."""
_SHOWN = 60

Bad: TypeAlias = Callable[[int, str], None]
"""Called with place and reason of a row that cannot be read; the rows after it are read all the same."""


@dataclass(frozen=True)
class Records:
    """Some rows of a file."""

    places: tuple[int, ...]
    """Which row of the file each is, from 1, without the header."""
    lines: tuple[int, ...]
    """The line that each ends on, the header counted; in Parquet, which has no lines, its place."""
    columns: dict[str, tuple[str, ...]]
    """Cells by the name of their column; an empty one is missing."""

    def __len__(self) -> int:
        return len(self.places)


class Unreadable(Exception):
    """A file cannot be read on; the words say where and why."""


def as_text(value: object) -> str:
    """A cell in the form that all formats share; ValueError says in words what cannot be one."""
    match value:
        case None:
            return ""
        case str():
            if len(value) > LONGEST_CELL:
                raise ValueError(f"has more than {LONGEST_CELL} letters")
            if not _is_text(value):
                raise ValueError("holds half a sign")
            return plain_cell(value)
        case bool():
            return "true" if value else "false"
        case float():
            if math.isnan(value):
                return ""
            return str(int(value)) if value.is_integer() and abs(value) <= WHOLE else repr(value)
        case int():
            return str(value)
        case _:
            raise ValueError("is neither a number nor a text")


def _is_text(value: str) -> bool:
    """Whether it can be written: JSON can name halves of signs that no file holds."""
    return value.isascii() or value.encode(errors="replace").decode() == value


def plain_cell(text: str) -> str:
    """The text of a cell; "72.0" is "72", for that is how some programs write whole numbers beside a missing one."""
    cell = text.strip()
    return cell[:-2] if cell.endswith(".0") and cell[:-2].removeprefix("-").isdecimal() else cell


def read_number(cell: str) -> float:
    """The number of a cell, NaN if it is missing; ValueError says in words what it is instead."""
    if is_missing(cell):
        return math.nan
    try:
        number = float(cell)
    except ValueError:
        raise ValueError("is no number") from None
    if abs(number) > LARGEST_NUMBER:
        raise ValueError("is not finite")
    return number


MISSING = frozenset({"", "na", "n/a", "nan", "null"})
"""Cells that hold nothing, however they are written."""


def is_missing(cell: str) -> bool:
    """Whether a cell holds nothing."""
    return not cell or (len(cell) <= 4 and cell.lower() in MISSING)


def plain_text(cell: str) -> str:
    """A cell's text in one spelling, empty where it is missing."""
    return "" if is_missing(cell) else unicodedata.normalize("NFC", cell)


def read_numbers(cells: Sequence[str]) -> tuple[npt.NDArray[np.float64], dict[int, str]]:
    """The numbers of a column, NaN where one is missing or none; for the latter their places, and why."""
    try:
        numbers = np.array([cell or "nan" for cell in cells], np.float64)
        if not (np.abs(numbers) > LARGEST_NUMBER).any():
            return numbers, {}
    except ValueError:
        numbers = np.empty(len(cells), np.float64)
    bad: dict[int, str] = {}
    for place, cell in enumerate(cells):
        try:
            numbers[place] = read_number(cell)
        except ValueError as error:
            numbers[place], bad[place] = math.nan, str(error)
    return numbers, bad


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of columns in one spelling; refused are too many, too long ones, and one that stands twice."""
    if not 1 <= len(names) <= MOST_COLUMNS:
        raise Unreadable(f"it has {len(names)} columns; from 1 to {MOST_COLUMNS} can be read")
    plain = tuple(map(plain_name, names))
    if max(map(len, plain)) > LONGEST_COLUMN:
        raise Unreadable(f"a column has a name of more than {LONGEST_COLUMN} letters")
    if not all(map(_is_text, plain)):
        raise Unreadable("a column has a name that holds half a sign")
    name, times = Counter(plain).most_common(1)[0]
    if times > 1:
        raise Unreadable(f"it has two columns {show_column(name)}")
    return plain


def plain_name(name: str) -> str:
    """A column's name in one spelling: macOS writes an accent as a letter of its own."""
    return unicodedata.normalize("NFC", name.strip())


def find_columns(wanted: Sequence[str], names: Sequence[str], *, called: str) -> list[int]:
    """The places of some columns."""
    places = {name: place for place, name in enumerate(names)}
    for name in wanted:
        if name not in places:
            raise DataError(
                f"{called} has no column {show_column(name)}",
                expected="a first line that names the columns, with commas between them",
                advice=f"name them so: {nearest(name, names)[:600]}",
            )
    return [places[name] for name in wanted]


def wrong_cell(called: str, line: int, why: str) -> DataError:
    """An error about one cell; `why` names its column."""
    return DataError(
        f"{called}, line {line}: {why}",
        expected="a cell like the others of its column",
        advice="correct that line",
    )


def show_column(name: str) -> str:
    """A column's name, cut to what a line can hold."""
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")


def select(records: Records, keep: Sequence[bool]) -> Records:
    """Some of the rows."""
    return Records(
        tuple(compress(records.places, keep)),
        tuple(compress(records.lines, keep)),
        {name: tuple(compress(cells, keep)) for name, cells in records.columns.items()},
    )
