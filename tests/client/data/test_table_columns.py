"""What a site tells of its columns: sums as numpy has them, and categories that enough patients have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pfl_client.data.declaration import Declared, Hashed
from pfl_client.data.table_columns import Categories, Tally, conclude, remark_columns
from pfl_common.errors import DataError
from pfl_common.spec.table_schema import SeenColumn

SAID = Declared()


def tallied(cells: Sequence[str]) -> Tally:
    """In blocks of four."""
    tally = Tally("c")
    for start in range(0, len(cells), 4):
        own = cells[start : start + 4]
        tally.add(own, [start + at + 2 for at in range(len(own))], called="train.csv")
    return tally


def counted(cells: Sequence[str], owners: Sequence[str] = (), *, fewest: int = 2) -> dict[str, Categories]:
    """By the column's name."""
    own = Categories(fewest)
    own.add(cells, owners or list(map(str, range(len(cells)))))
    return {"c": own}


def told(
    tally: Tally,
    said: Declared = SAID,
    categories: Mapping[str, Categories] = {},  # not changed
) -> SeenColumn:
    [column] = conclude([tally], categories, said)
    return column


def test_sums_are_those_over_all_numbers_that_are_there() -> None:
    """Block by block as at once, also of large numbers that differ little."""
    values = 1e6 + np.random.default_rng(0).normal(0, 1e-2, 50)
    column = told(tallied([*map(repr, values.tolist()), "", "NA"]))
    assert (50, True, False) == (column.count, column.missing, column.categorical)
    mean = column.total / 50
    assert abs(mean - values.mean()) < 1e-9
    assert abs(column.square / 50 - mean**2 - values.var()) < 1e-3
    assert abs(column.total - values.sum()) < 1e-6


def test_sums_over_few_numbers_are_not_told_and_a_site_can_hide_its_own() -> None:
    """Over one row they would be that row."""
    assert SeenColumn("c") == told(tallied(["1", "2", "3", "4"]))
    assert 5 == told(tallied(["1", "2", "3", "4", "5"])).count
    assert SeenColumn("c") == told(tallied(["1", "2", "3", "4", "5"]), Declared(tell_counts=False))


def test_categories_are_told_that_enough_patients_have() -> None:
    """Three rows of one patient are one patient."""
    cells = ["a", "a", "b", "b", "b", "c"]
    own = counted(cells, ["p", "q", "r", "r", "r", "s"])
    assert SeenColumn("c", True, categories=("a",)) == told(tallied(cells), SAID, own)
    assert SeenColumn("c", True) == told(tallied(cells), Declared(tell_categories=False))
    assert SeenColumn("c", True, hashed=8) == told(tallied(cells), Declared(tell_categories=Hashed(8)))


def test_names_of_patients_are_never_told() -> None:
    """What nobody shares with others is not told, nor what is too much to be categories."""
    cells = [f"name {number}" for number in range(40)]
    column = told(tallied(cells), SAID, counted(cells))
    assert () == column.categories
    [words] = remark_columns([tallied(cells)], [column], SAID)
    assert '"leave_out"' in words
    assert "name 3" not in words
    visits = [f"name {number // 6}" for number in range(6 * 13)]
    assert () == counted(visits)["c"].told, "each of them comes often enough, and they are too many"
    assert 12 == len(counted(visits[:72])["c"].told)
    assert () == counted([f"code {number // 10}" for number in range(10 * 1001)])["c"].told
    many = counted([str(number) for number in range(20_001)])["c"]
    assert (True, {}) == (many.crowded, many.owners)


def test_a_text_among_numbers_is_an_error_that_names_its_line() -> None:
    """Unless the column is said to hold categories."""
    tally = tallied(["1", "2", "<5 secret", "4"])
    with pytest.raises(DataError) as error:
        conclude([tally], {}, SAID)
    assert "train.csv, line 4: the cell in column 'c' is no number, 3 others are" == error.value.seen
    assert "secret" not in str(error.value)
    assert told(tally, Declared(categorical=("c",))).categorical


def test_a_column_without_values_is_not_told() -> None:
    """It is as one that is not there."""
    tally = tallied(["", "NA"])
    assert () == conclude([tally], {}, SAID)
    assert ["the column 'c' has no value in any row"] == remark_columns([tally], (), SAID)
