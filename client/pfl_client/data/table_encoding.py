"""Turns rows into the numbers that a run's schema asks for: training, evaluation and prediction all go this way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pfl_client.data.records import Records, is_missing, plain_text, read_numbers, show_column, wrong_cell
from pfl_client.data.scaling import Floats
from pfl_client.data.vocabulary import hash_into
from pfl_common.spec.table_schema import Column, count_width

Wrong = Callable[[int, str], None]
"""Called with the place, in the block, of a row with a cell that cannot be read, and the reason."""


class Encoder:
    """Reads cells as the run agreed."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._places = [
            {name: place for place, name in enumerate(column.categories)} for column in self._columns
        ]

    @property
    def width(self) -> int:
        """The numbers that a row becomes."""
        return count_width(self._columns)

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [column.name for column in self._columns]

    def encode(self, rows: Records, wrong: Wrong) -> Floats:
        """A row of numbers for each of these; of one that is `wrong` they mean nothing."""
        encoded = np.zeros((len(rows), self.width), np.float32)
        start = 0
        for column, places in zip(self._columns, self._places, strict=True):
            # A column that the file does not have is missing in every row.
            cells = rows.columns.get(column.name, ("",) * len(rows))
            own = encoded[:, start : start + column.width]
            if column.categorical:
                _encode_categories(cells, column, places, own)
            else:
                _encode_numbers(cells, column, own, wrong)
            start += column.width
        return encoded


def _encode_numbers(cells: Sequence[str], column: Column, own: Floats, wrong: Wrong) -> None:
    values, bad = read_numbers(cells)
    for place, why in bad.items():
        wrong(place, f"the cell in column {show_column(column.name)} {why}")
    gone = np.isnan(values)
    own[:, 0] = np.where(gone, 0.0, (values - column.mean) / column.deviation)
    if column.missing:
        own[:, 1] = gone


def _encode_categories(cells: Sequence[str], column: Column, places: dict[str, int], own: Floats) -> None:
    other = column.hashed or len(column.categories)
    for row, cell in enumerate(cells):
        if column.missing and is_missing(cell):
            own[row, other + 1] = 1
            continue
        name = plain_text(cell)
        if column.hashed and name:
            own[row, hash_into(name, column.hashed)] = 1
        else:
            own[row, places.get(name, other)] = 1


def refuse_cell(called: str, rows: Records) -> Wrong:
    """For rows that have to be readable: an error that names the line and the column."""

    def refuse(place: int, why: str) -> None:
        raise wrong_cell(called, rows.lines[place], why)

    return refuse
