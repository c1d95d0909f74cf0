"""Cells in one form whatever file they come from, numbers or words why they are none, names in one spelling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pfl_client.data.records import (
    Records,
    Unreadable,
    as_text,
    check_names,
    find_columns,
    plain_text,
    read_number,
    read_numbers,
    select,
)
from pfl_common.errors import DataError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (" a ", "a"),
        (True, "true"),
        (3, "3"),
        (3.0, "3"),
        (0.1, "0.1"),
        (math.nan, ""),
        (1e300, "1e+300"),
    ],
)
def test_a_cell_is_the_same_text_in_every_format(value: object, text: str) -> None:
    """A whole number is one, whether a format knows whole numbers or not."""
    assert text == as_text(value)


def test_what_is_no_cell_is_refused_without_being_shown() -> None:
    """Lists, and texts beyond the limit of the csv module."""
    with pytest.raises(ValueError, match="neither a number nor a text"):
        as_text(["secret"])
    with pytest.raises(ValueError, match="more than 131072 letters"):
        as_text("x" * 131_073)


def test_numbers_and_what_is_missing() -> None:
    """The words that programs write for a missing value are none; what is too large for float32 is refused."""
    assert -1.5 == read_number("-1.5")
    assert all(math.isnan(read_number(cell)) for cell in ("", "NA", "n/a", "NaN", "null"))
    for cell, why in (("five", "is no number"), ("1e39", "is not finite"), ("inf", "is not finite")):
        with pytest.raises(ValueError, match=why):
            read_number(cell)


def test_a_column_of_numbers() -> None:
    """As cell by cell, with the places of those that are none."""
    numbers, bad = read_numbers(["1", "", "3e38"])
    assert ([1, 3e38], {}) == (numbers[[0, 2]].tolist(), bad)
    assert math.isnan(numbers[1])
    numbers, bad = read_numbers(["1", "NA", "x", "-1e39"])
    assert (1, [True] * 3) == (numbers[0], np.isnan(numbers[1:]).tolist())
    assert {2: "is no number", 3: "is not finite"} == bad


def test_one_spelling_of_accents() -> None:
    """In names and in cells."""
    assert ("\u00e9",) == check_names([" e\u0301 "])
    assert "\u00e9" == plain_text("e\u0301")
    with pytest.raises(Unreadable, match="two columns"):
        check_names(["\u00e9", "e\u0301"])


def test_columns_are_found_by_name() -> None:
    """The nearest name is told where one is missing."""
    assert [1, 0] == find_columns(["b", "a"], ["a", "b"], called="train.csv")
    with pytest.raises(DataError, match=r"train\.csv has no column 'agee'"):
        find_columns(["agee"], ["age"], called="train.csv")


def test_some_of_the_rows() -> None:
    """With their places and lines."""
    rows = Records((1, 2, 3), (2, 3, 5), {"a": ("x", "y", "z")})
    assert Records((1, 3), (2, 5), {"a": ("x", "z")}) == select(rows, [True, False, True])
