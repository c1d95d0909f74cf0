"""Reads tables of comma-separated values: a row a sample, by the names of the run's columns or in their order."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from pfl_client.data.scaling import Floats
from pfl_common.errors import DataError, nearest


@dataclass(frozen=True)
class Columns:
    """The columns to read: the run's, and beside them those of the class and of the group."""

    count: int
    names: tuple[str, ...] = ()
    label: str = ""
    group: str = ""


@dataclass(frozen=True)
class TableRows:
    """Rows that could be read; `places` are their lines' numbers, without the header."""

    places: tuple[int, ...]
    x: Floats
    labels: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class _Taken:
    """Where in a line the numbers, the class and the group stand."""

    numbers: tuple[int, ...]
    label: int | None
    group: int | None
    width: int

    def read(self, line: Sequence[str]) -> tuple[list[float], str, str]:
        """One line; a cell that is no number raises ValueError with words."""
        if len(line) != self.width:
            raise ValueError(f"it has {len(line)} cells, the table has {self.width} columns")
        numbers = [_number(line[place], place) for place in self.numbers]
        named = [line[place].strip() if place is not None else "" for place in (self.label, self.group)]
        return numbers, named[0], named[1]


def read_table(
    path: Path, wanted: Columns, *, most: int, bad: Callable[[int, str], None]
) -> Iterator[TableRows]:
    """The rows of a file in blocks; `bad` is called with place and reason of a row that cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = (line for line in csv.reader(stream, strict=True) if line)
            first = next(lines, None)
            if first is None:
                raise _wrong("the table is empty")
            taken, rest = _find_columns(first, wanted, lines)
            numbered = enumerate(rest, start=1)
            while block := list(islice(numbered, most)):
                yield _read_block(block, taken, bad)
    except PermissionError:
        raise _wrong("the table may not be read: Permission denied") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _wrong(f"the table cannot be read: {type(error).__name__}") from None


def _read_block(
    block: list[tuple[int, list[str]]], taken: _Taken, bad: Callable[[int, str], None]
) -> TableRows:
    read: list[tuple[int, tuple[list[float], str, str]]] = []
    for place, line in block:
        try:
            read.append((place, taken.read(line)))
        except ValueError as error:
            bad(place, str(error))
    x = np.array([numbers for _, (numbers, _, _) in read], np.float32).reshape(len(read), len(taken.numbers))
    labels = tuple(label for _, (_, label, _) in read) if taken.label is not None else ()
    groups = tuple(group for _, (_, _, group) in read) if taken.group is not None else ()
    return TableRows(tuple(place for place, _ in read), x, labels, groups)


def _find_columns(
    first: list[str], wanted: Columns, rest: Iterator[list[str]]
) -> tuple[_Taken, Iterator[list[str]]]:
    """Where everything stands: by the first line, which is a header unless it is all numbers."""
    if not (wanted.names or wanted.label or wanted.group) and all(_is_number(cell) for cell in first):
        if len(first) != wanted.count:
            raise _wrong(f"the table has {len(first)} columns, the run's have {wanted.count}")
        return _Taken(tuple(range(len(first))), None, None, len(first)), chain([first], rest)
    header = [cell.strip() for cell in first]
    if double := next((name for name in header if header.count(name) > 1), None):
        raise _wrong(f"the table has two columns {double!r}")
    label, group = (_find(name, header) if name else None for name in (wanted.label, wanted.group))
    if wanted.names:
        numbers = tuple(_find(name, header) for name in wanted.names)
    else:
        numbers = tuple(place for place in range(len(header)) if place not in (label, group))
    if len(numbers) != wanted.count:
        raise _wrong(f"the table has {len(numbers)} columns of numbers, the run's have {wanted.count}")
    return _Taken(numbers, label, group, len(header)), rest


def _find(name: str, header: list[str]) -> int:
    if name not in header:
        raise DataError(
            f"the table has no column {name!r}",
            expected="a first line that names the columns of the run, with commas between them",
            advice=f"name them so: {nearest(name, header)}",
        )
    return header.index(name)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, place: int) -> float:
    try:
        number = float(cell)
    except ValueError:
        raise ValueError(f"its cell {place + 1} is no number") from None
    if not abs(number) <= np.finfo(np.float32).max:
        raise ValueError(f"its cell {place + 1} is not finite")
    return number


def _wrong(seen: str) -> DataError:
    return DataError(
        seen,
        expected="UTF-8 with commas between cells, a row for each sample, with the run's columns",
        advice="look at the file's first lines",
    )
