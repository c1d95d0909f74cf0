"""Rows are texts or a table, by the names of their columns; data.json overrules, and a contradiction is refused."""

from __future__ import annotations

import pytest

from pfl_client.data.declaration import Declared
from pfl_client.data.row_kind import recognise_rows
from pfl_common.errors import DataError


@pytest.mark.parametrize(
    ("names", "said", "kind"),
    [
        (("text", "label"), Declared(), "texts"),
        (("text", "label", "patient"), Declared(), "texts"),
        (("text", "outcome"), Declared(label="outcome"), "texts"),
        (("age", "label"), Declared(), "table"),
        (("text", "age", "label"), Declared(kind="tokens"), "texts"),
        (("text", "age", "label"), Declared(kind="table"), "table"),
    ],
)
def test_the_columns_tell(names: tuple[str, ...], said: Declared, kind: str) -> None:
    """Unless data.json does."""
    assert kind == recognise_rows(names, said, called="train.csv")


@pytest.mark.parametrize(
    ("names", "said", "words"),
    [
        (("text", "age", "label"), Declared(), "a column 'text' and others beside it, such as 'age'"),
        (("age", "label"), Declared(kind="tokens"), "without a column 'text'"),
        (("age", "label"), Declared(kind="image"), "without a column 'file' or"),
        (("age", "label"), Declared(kind="windows"), "says 'windows'"),
        (("age", "label"), Declared(kind="table", columns=("age",)), 'says "columns"'),
    ],
)
def test_what_could_be_two_things_is_refused(names: tuple[str, ...], said: Declared, words: str) -> None:
    """And what data.json says of other data."""
    with pytest.raises(DataError, match=words):
        recognise_rows(names, said, called="train.csv")
