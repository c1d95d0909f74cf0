"""Parquet: types become text, and without pyarrow it is said what to install."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from pfl_client.data import parquet_file
from pfl_client.data.record_file import RecordFile
from pfl_client.data.records import Unreadable
from pfl_common.errors import DataError
from tests.client.data.written import write_rows


def test_types_that_text_has_no_form_for(tmp_path: Path) -> None:
    """Days as they are usually written, exact decimals with their digits."""
    row = {"day": datetime.date(2026, 11, 19), "dose": Decimal("1.50"), "n": 7}
    [rows] = parquet_file.read(write_rows(tmp_path / "t.parquet", [row]), ["n", "day", "dose"], most=9)
    assert {"n": ("7",), "day": ("2026-11-19",), "dose": ("1.50",)} == rows.columns


def test_a_cell_of_another_type_is_named_by_its_place(tmp_path: Path) -> None:
    """And not shown."""
    path = write_rows(tmp_path / "t.parquet", [{"a": ["secret"]}])
    with pytest.raises(Unreadable, match="row 1: the cell in column 'a' is neither") as error:
        list(parquet_file.read(path, ["a"], most=9))
    assert "secret" not in str(error.value)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an optional extra."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError) as error:
        RecordFile(tmp_path / "train.parquet")
    assert "pip install 'pfl-net[parquet]'" in error.value.advice
