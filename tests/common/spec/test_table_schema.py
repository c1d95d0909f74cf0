"""How many numbers a row becomes."""

from __future__ import annotations

import pytest

from pfl_common.spec.table_schema import Column, count_width


@pytest.mark.parametrize(
    ("column", "width"),
    [
        (Column("age"), 1),
        (Column("age", missing=True), 2),
        (Column("ward", categorical=True, categories=("a", "b")), 3),
        (Column("ward", categorical=True, missing=True, categories=("a", "b")), 4),
        (Column("ward", categorical=True, hashed=16), 17),
    ],
)
def test_the_places_of_a_column(column: Column, width: int) -> None:
    """A place for all other categories, and one for missing values if there can be any."""
    assert width == column.width
    assert width + 1 == count_width([column, Column("b")])
