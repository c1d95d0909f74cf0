"""Rows as numbers, worked out by hand: scaled, missing, categories by name and by hash, and all others."""

from __future__ import annotations

import numpy as np
import pytest

from pfl_client.data.records import Records
from pfl_client.data.table_encoding import Encoder, refuse_cell
from pfl_client.data.vocabulary import hash_into
from pfl_common.errors import DataError
from pfl_common.spec.table_schema import Column


def encode(column: Column, *cells: str) -> list[list[float]]:
    rows = Records(tuple(range(len(cells))), tuple(range(len(cells))), {column.name: cells})
    encoded: list[list[float]] = Encoder([column]).encode(rows, refuse_cell("train.csv", rows)).tolist()
    return encoded


def test_numbers_are_scaled_and_missing_ones_are_the_mean() -> None:
    """With a place of its own for that, where a site has missing values."""
    assert [[-1.0], [0.0], [0.0]] == encode(Column("c", mean=10, deviation=4), "6", "10", "")
    holed = Column("c", missing=True, mean=10, deviation=4)
    assert [[-1.0, 0.0], [0.0, 1.0]] == encode(holed, "6", "NA")


def test_categories_have_a_place_each_and_one_for_all_others() -> None:
    """A missing one is another one, unless it has a place of its own."""
    named = Column("c", categorical=True, categories=("a", "b"))
    assert [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]] == encode(named, "a", "b", "x", "")
    holed = Column("c", categorical=True, missing=True, categories=("a",))
    assert [[1, 0, 0], [0, 1, 0], [0, 0, 1]] == encode(holed, "a", "x", "null")


def test_hashed_categories_need_no_names() -> None:
    """Every name has a place, at every site the same."""
    [[*one], [*other]] = encode(Column("c", categorical=True, hashed=5), "ward 1", "")
    assert hash_into("ward 1", 5) == one.index(1)
    assert [0, 0, 0, 0, 0, 1] == other


def test_a_column_that_the_file_lacks_is_missing_in_every_row() -> None:
    """The others stand beside it."""
    columns = [Column("a", missing=True, mean=3), Column("b", mean=1)]
    rows = Records((1,), (2,), {"b": ("3",)})
    assert [[0.0, 1.0, 2.0]] == Encoder(columns).encode(rows, refuse_cell("t", rows)).tolist()


def test_a_cell_that_is_no_number_is_named_by_its_place() -> None:
    """Or told, where the other rows go on."""
    rows = Records((1, 2), (2, 3), {"c": ("1", "secret")})
    encoder, told = Encoder([Column("c")]), list[tuple[int, str]]()
    with pytest.raises(DataError, match=r"train.csv, line 3: the cell in column 'c' is no number") as error:
        encoder.encode(rows, refuse_cell("train.csv", rows))
    assert "secret" not in str(error.value)
    assert np.float32(1) == encoder.encode(rows, lambda place, why: told.append((place, why)))[0, 0]
    assert [1] == [place for place, _ in told]
