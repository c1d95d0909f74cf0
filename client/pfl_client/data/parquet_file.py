"""Reads Parquet files block by block, with the optional package pyarrow."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # pyarrow ships no types

from pfl_client.data.array_bounds import MOST_EXPANDED, SMALL
from pfl_client.data.records import LONGEST_CELL, Records, Unreadable, as_text, check_names, show_column
from pfl_common.errors import DataError

MOST_ROWS = 1 << 28
"""Of a file: class and patient of each row are held in memory."""
_LETTER_BYTES = 4
"""A letter of UTF-8 has at most so many."""


def name_columns(path: Path) -> tuple[str, ...]:
    """The names of the columns."""
    with _opened(path) as file:
        return check_names(file.schema_arrow.names)


def read(path: Path, columns: Sequence[str], *, most: int) -> Iterator[Records]:
    """The rows of some columns, at most `most` at a time."""
    with _opened(path) as file:
        stored = file.schema_arrow.names
        own = dict(zip(check_names(stored), stored, strict=True))
        for name in columns:
            _check_type(file.schema_arrow.field(own[name]).type, name)
        place = 0
        # With no column of its own a batch would not know its rows.
        for batch in file.iter_batches(
            batch_size=most, columns=[own[name] for name in columns] or stored[:1]
        ):
            places = tuple(range(place + 1, place + 1 + batch.num_rows))
            place += batch.num_rows
            cells = {name: _texts(batch.column(own[name]), name, places) for name in columns}
            yield Records(places, places, cells)


def _check_claims(file: Any, size: int) -> None:
    """What the file says of itself, held against its size: of equal cells a few bytes stand for millions."""
    said = file.metadata
    groups = (said.row_group(place) for place in range(said.num_row_groups))
    unpacked = sum(group.total_byte_size for group in groups)
    if unpacked > max(SMALL, MOST_EXPANDED * size):
        raise Unreadable(
            f"it would become {unpacked / 1e9:.1f} GB when it is unpacked, more than {MOST_EXPANDED} times its size"
        )
    if not 0 <= said.num_rows <= MOST_ROWS:
        raise Unreadable(f"it says that it has {said.num_rows} rows; at most {MOST_ROWS} can be read")


def _check_type(kind: Any, name: str) -> None:
    from pyarrow import types

    if types.is_nested(kind):
        raise Unreadable(f"the column {show_column(name)} holds lists or objects, not one value in each row")


def _check_letters(column: Any, name: str) -> None:
    """Refuse a cell that is too long before any is copied: of a dictionary one may stand in each row."""
    import pyarrow
    from pyarrow import compute, types

    values = column.dictionary if pyarrow.types.is_dictionary(column.type) else column
    if types.is_string(values.type) or types.is_binary(values.type) or types.is_large_string(values.type):
        longest = compute.max(compute.binary_length(values)).as_py() or 0
        if longest > _LETTER_BYTES * LONGEST_CELL:
            raise Unreadable(f"a cell in column {show_column(name)} has more than {LONGEST_CELL} letters")


def _texts(column: Any, name: str, places: Sequence[int]) -> tuple[str, ...]:
    _check_letters(column, name)
    texts: list[str] = []
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):
        raise Unreadable(f"the column {show_column(name)} holds moments that no calendar has") from None
    for value, place in zip(values, places, strict=True):
        try:
            texts.append(as_text(_plain(value)))
        except ValueError as error:
            raise Unreadable(f"row {place}: the cell in column {show_column(name)} {error}") from None
    return tuple(texts)


def _plain(value: object) -> object:
    """Types that a text file has no other form for than their words."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal) else value


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            "a table is in Parquet, and pyarrow, which reads it, is not installed",
            expected="the optional extra `parquet`",
            advice="pip install 'pfl-net[parquet]', or save the table as CSV",
            file=str(path),
        ) from None
    try:
        # Texts stay as they are stored, each different one once.
        texts = _list_texts(parquet.read_schema(path))
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            _check_claims(file, path.stat().st_size)
            yield file
    except pyarrow.ArrowException as error:
        raise Unreadable(f"it is no Parquet that can be read: {type(error).__name__}") from None


def _list_texts(schema: Any) -> list[str]:
    from pyarrow import types

    return [one.name for one in schema if types.is_string(one.type) or types.is_binary(one.type)]
