"""Reads rows of numbers to predict: columns by name, or in their order where a run has no names for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pfl_client.data.record_file import RecordFile
from pfl_client.data.records import Bad, Records, plain_text, read_numbers, select, show_column
from pfl_client.data.scaling import Floats
from pfl_common.errors import DataError

CALLED = "the table"


@dataclass(frozen=True)
class Roles:
    """Columns that are no features: of the class and of the group, if they are read."""

    label: str = ""
    group: str = ""

    @property
    def named(self) -> list[str]:
        """The columns."""
        return [name for name in (self.label, self.group) if name]


@dataclass(frozen=True)
class Columns:
    """The columns of numbers to read: the run's, and beside them those of the class and of the group."""

    count: int
    names: tuple[str, ...] = ()
    label: str = ""
    group: str = ""


@dataclass(frozen=True)
class TableRows:
    """Rows that could be read; `places` are their numbers, without the header."""

    places: tuple[int, ...]
    x: Floats
    labels: tuple[str, ...]
    groups: tuple[str, ...]


def read_table(path: Path, wanted: Columns, *, most: int, bad: Bad) -> Iterator[TableRows]:
    """The rows of a file of numbers in blocks; `bad` is called with place and reason of a row that cannot be read."""
    roles = Roles(wanted.label, wanted.group)
    # Without names of columns the first line may be a row already.
    file = RecordFile(path, called=CALLED, headless=not (wanted.names or roles.named))
    names = wanted.names or tuple(name for name in file.names if name not in roles.named)
    if len(names) != wanted.count:
        seen = f"{CALLED} has {len(names)} columns of numbers, the run's have {wanted.count}"
        raise DataError(seen, expected="the run's columns", advice="look at the file's first lines")
    for rows in file.read([*names, *roles.named], most=most, bad=bad):
        x, fine = _read_numbers(rows, names, bad)
        kept = select(rows, fine.tolist())
        yield TableRows(kept.places, x[fine], *read_roles(kept, roles))


def read_roles(rows: Records, roles: Roles) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The class and the group of each row, where they are read."""
    label, group = (
        tuple(map(plain_text, rows.columns[name])) if name else () for name in (roles.label, roles.group)
    )
    return label, group


def _read_numbers(
    rows: Records, names: tuple[str, ...], bad: Bad
) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Numbers, and which rows have nothing else."""
    x = np.empty((len(rows), len(names)), np.float32)
    fine = np.ones(len(rows), np.bool_)
    for column, name in enumerate(names):
        x[:, column], wrong = read_numbers(rows.columns[name])
        for row in np.flatnonzero(np.isnan(x[:, column]) & fine).tolist():
            fine[row] = False
            bad(rows.places[row], f"its cell in column {show_column(name)} {wrong.get(row, 'is missing')}")
    return x, fine
