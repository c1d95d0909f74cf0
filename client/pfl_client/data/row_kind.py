"""Recognises what a file of rows holds, by the names of its columns: texts, or a table.

A list of pictures never comes here: the layout of the data folder knows it by its own columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pfl_client.data.declaration import FILE, Declared
from pfl_client.data.labelled_rows import LABEL, PATIENT
from pfl_client.data.picture_list import FILE_COLUMNS
from pfl_client.data.records import plain_name, show_column
from pfl_common.errors import DataError

RowKind: TypeAlias = Literal["texts", "table"]

TEXT = "text"
"""The column of a text."""


def recognise_rows(names: Sequence[str], declared: Declared, *, called: str) -> RowKind:
    """What the rows are, unless data.json says it; refused is what could be two things, or is none."""
    if declared.kind is not None:
        return _as_declared(declared, names, called=called)
    if TEXT not in names:
        return "table"
    roles = {TEXT, plain_name(declared.label or LABEL), plain_name(declared.patient or PATIENT)}
    if others := [name for name in names if name not in roles]:
        raise DataError(
            f"{called} has a column {TEXT!r} and others beside it, such as {show_column(others[0])}: texts, or a table",
            expected=f'"kind" in {FILE}',
            advice='say {"kind": "tokens"} to read the texts alone, or {"kind": "table"} with the others, and with '
            f'{{"leave_out": ["{TEXT}"]}} if no category stands there',
        )
    return "texts"


def _as_declared(declared: Declared, names: Sequence[str], *, called: str) -> RowKind:
    if declared.kind == "table":
        if declared.columns is not None:
            raise DataError(
                f'{FILE} says "columns", and {called} names its own',
                expected='"columns" for arrays alone',
                advice='remove it; "leave_out" names columns that are no features',
            )
        return "table"
    if declared.kind == "tokens" and TEXT in names:
        return "texts"
    needs = {"tokens": f"a column {TEXT!r}", "image": f"a column {' or '.join(map(repr, FILE_COLUMNS))}"}
    raise DataError(
        f"{FILE} says {declared.kind!r} for 'kind', and {called} is a file of rows"
        + (f" without {needs[declared.kind]}" if declared.kind in needs else ""),
        expected='"table", "tokens" with a column of texts, or "image" with a column of files',
        advice="correct it, or remove it: the kind is recognised",
    )
