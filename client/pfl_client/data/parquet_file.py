"""Reads Parquet files block by block, with the optional package pyarrow."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any  # pyarrow ships no types

from pfl_client.data.records import Records, Unreadable, as_text, check_names, show_column
from pfl_common.errors import DataError


def name_columns(path: Path) -> tuple[str, ...]:
    """The names of the columns."""
    with _opened(path) as file:
        return check_names(file.schema_arrow.names)


def read(path: Path, columns: Sequence[str], *, most: int) -> Iterator[Records]:
    """The rows of some columns, at most `most` at a time."""
    with _opened(path) as file:
        stored = file.schema_arrow.names
        own = dict(zip(check_names(stored), stored, strict=True))
        place = 0
        # With no column of its own a batch would not know its rows.
        for batch in file.iter_batches(
            batch_size=most, columns=[own[name] for name in columns] or stored[:1]
        ):
            places = tuple(range(place + 1, place + 1 + batch.num_rows))
            place += batch.num_rows
            cells = {name: _texts(batch.column(own[name]), name, places) for name in columns}
            yield Records(places, places, cells)


def _texts(column: Any, name: str, places: Sequence[int]) -> tuple[str, ...]:
    texts: list[str] = []
    for value, place in zip(column.to_pylist(), places, strict=True):
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
        with parquet.ParquetFile(path) as file:
            yield file
    except pyarrow.ArrowException as error:
        raise Unreadable(f"it is no Parquet that can be read: {type(error).__name__}") from None
