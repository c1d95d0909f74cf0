"""Reads files of rows with named columns, block by block: CSV, Parquet and JSON lines.

file = RecordFile(path, called="train.csv")
for rows in file.read(["age", "label"]): ...
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from pfl_client.data import parquet_file
from pfl_client.data.records import (
    Bad,
    Records,
    Unreadable,
    as_text,
    check_names,
    find_columns,
    plain_cell,
    plain_name,
    show_column,
)
from pfl_common.errors import DataError
from pfl_common.spec.data_description import MOST_COLUMNS

if TYPE_CHECKING:
    from _csv import Reader

SUFFIXES = (".csv", ".parquet", ".jsonl")
BLOCK_ROWS = 4096
BLOCK_LETTERS = 64 << 20
"""Of a block's cells together: of rows that are long a block has fewer."""
LONGEST_LINE = 8 << 20
"""Letters of a line: what is no text at all may be a single one."""

Rows: TypeAlias = Iterator[tuple[int, int, list[str]]]
"""Place, line and cells of each."""
_Numbered: TypeAlias = Iterator[tuple[int, list[str]]]
"""Line and cells of each."""


class RecordFile:
    """A file of rows; `names` are its columns. Nothing of it is kept in memory but the block that is read."""

    def __init__(self, path: Path, *, called: str = "the table", headless: bool = False) -> None:
        """`called` is how errors name it. With `headless` a CSV whose first line is all numbers has no header: its
        columns are then called 1, 2, 3 and so on.

        JSON lines are read once for their names alone: not every line has to name every column.
        """
        self._path, self.called, self._headless = path, called, headless
        self._kind = path.suffix.lower()
        with self._explained():
            self.names = self._name()

    def read(
        self, columns: Sequence[str] | None = None, *, most: int = BLOCK_ROWS, bad: Bad | None = None
    ) -> Iterator[Records]:
        """Rows, at most `most` at a time, of all columns or of some.

        Without `bad` the first row that cannot be read is an error; with it such rows are told of and left out.
        """
        wanted = self.names if columns is None else tuple(columns)
        find_columns(wanted, self.names, called=self.called)
        with self._explained():
            if self._kind == ".parquet":
                yield from parquet_file.read(self._path, wanted, most=most)
            else:
                with self._open() as stream:
                    yield from _gather(self._rows(stream, wanted, bad or _refuse), wanted, most)

    def _name(self) -> tuple[str, ...]:
        if self._kind == ".parquet":
            return parquet_file.name_columns(self._path)
        with self._open() as stream:
            return (
                _name_json(stream)
                if self._kind == ".jsonl"
                else _read_csv(stream, headless=self._headless)[0]
            )

    def _rows(self, stream: IO[str], wanted: Sequence[str], bad: Bad) -> Rows:
        if self._kind == ".jsonl":
            return _read_json(stream, wanted, bad)
        names, lines = _read_csv(stream, headless=self._headless)
        return _pick(lines, find_columns(wanted, names, called=self.called), len(names), bad)

    def _open(self) -> IO[str]:
        return self._path.open(newline="", encoding="utf-8-sig")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors in our own words: those of others may show a cell."""
        called = self.called
        try:
            yield
            return
        except PermissionError:
            seen, advice = f"{called} may not be read: Permission denied", "look at ls -l"
        except UnicodeDecodeError:
            seen, advice = f"{called} is not UTF-8", "save it again as UTF-8"
        except OSError as error:
            seen, advice = f"{called} cannot be read: {type(error).__name__}", "check the disk it lies on"
        except Unreadable as error:
            seen, advice = f"{called}: {error}", "look at that place of the file"
        expected = "CSV (UTF-8, commas between cells, a first line of names), Parquet or JSON lines"
        raise DataError(seen, expected=expected, advice=advice, file=str(self._path)) from None


def is_record_file(path: Path) -> bool:
    """Whether a file's name says that it has rows."""
    return path.suffix.lower() in SUFFIXES


def _refuse(_: int, why: str) -> None:
    raise Unreadable(why)


class _Lines:
    """The lines of a file, none of them too long, nor too many together: quotation marks join lines to one row."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._row = stream, 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(LONGEST_LINE + 1)
        if not line:
            raise StopIteration
        self._row += len(line)
        if self._row > LONGEST_LINE:
            raise Unreadable(f"a line, or a row of several, has more than {LONGEST_LINE} letters")
        return line

    def begin_row(self) -> None:
        """What follows belongs to another row."""
        self._row = 0


def _gather(rows: Rows, names: Sequence[str], most: int) -> Iterator[Records]:
    """Rows as blocks of columns, of long rows fewer at a time."""
    block, letters = list[tuple[int, int, list[str]]](), 0
    for row in rows:
        block.append(row)
        letters += sum(map(len, row[2]))
        if len(block) == most or letters >= BLOCK_LETTERS:
            yield _turn(block, names)
            block, letters = [], 0
    if block:
        yield _turn(block, names)


def _turn(block: Sequence[tuple[int, int, list[str]]], names: Sequence[str]) -> Records:
    places, lines, cells = zip(*block, strict=True)
    return Records(places, lines, dict(zip(names, zip(*cells, strict=True), strict=True)))


def _read_csv(stream: IO[str], *, headless: bool) -> tuple[tuple[str, ...], _Numbered]:
    """The names, and the lines below them."""
    bounded = _Lines(stream)
    lines = _csv_lines(csv.reader(bounded, strict=True), bounded)
    first = next(lines, None)
    if first is None:
        raise Unreadable("it is empty")
    line, cells = first
    if headless and all(map(_is_number, cells)):
        return tuple(str(place) for place in range(1, len(cells) + 1)), chain([first], lines)
    if len(cells) == 1 and any(sign in cells[0] for sign in ";\t"):
        raise Unreadable(f"line {line} has no commas between its names, but semicolons or tabs")
    return check_names(cells), lines


def _csv_lines(reader: Reader, bounded: _Lines) -> _Numbered:
    while True:
        bounded.begin_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            # Also a cell that is too long: a quotation mark that is never closed makes one of all that follows.
            why = f"line {reader.line_num} has quotation marks that do not fit together, or a cell that is too long"
            raise Unreadable(why) from None
        if cells:
            yield reader.line_num, cells


def _pick(lines: _Numbered, columns: Sequence[int], width: int, bad: Bad) -> Rows:
    for place, (line, cells) in enumerate(lines, start=1):
        if len(cells) == width:
            yield place, line, [plain_cell(cells[column]) for column in columns]
        else:
            bad(place, f"line {line} has {len(cells)} cells, the table has {width} columns")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _json_lines(stream: IO[str]) -> Iterator[tuple[int, object]]:
    """The content of each line that is not empty; None of one that is no JSON."""
    bounded = _Lines(stream)
    for line, text in enumerate(bounded, start=1):
        bounded.begin_row()
        if text.strip():
            try:
                yield line, json.loads(text)
            except (ValueError, RecursionError):
                yield line, None


def _name_json(stream: IO[str]) -> tuple[str, ...]:
    """The names of all lines, in the order in which they first occur."""
    names: dict[str, None] = {}
    for _, said in _json_lines(stream):
        names |= dict.fromkeys(map(plain_name, said if isinstance(said, dict) else ()))
        if len(names) > MOST_COLUMNS:
            break
    if not names:
        raise Unreadable("it has no line with a JSON object")
    return check_names(tuple(names))


def _read_json(stream: IO[str], names: Sequence[str], bad: Bad) -> Rows:
    for place, (line, said) in enumerate(_json_lines(stream), start=1):
        if not isinstance(said, dict):
            bad(place, f"line {line} is no JSON object")
            continue
        try:
            own = {plain_name(name): value for name, value in said.items()}
            yield place, line, [_json_cell(own, name) for name in names]
        except ValueError as error:
            bad(place, f"line {line}: {error}")


def _json_cell(said: dict[str, object], name: str) -> str:
    try:
        return as_text(said.get(name))
    except ValueError as error:
        raise ValueError(f"the cell in column {show_column(name)} {error}") from None
