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
    with pytest.raises(Unreadable, match="the column 'a' holds lists") as error:
        list(parquet_file.read(path, ["a"], most=9))
    assert "secret" not in str(error.value)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is an optional extra."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError) as error:
        RecordFile(tmp_path / "train.parquet")
    assert "pip install 'pfl-net[parquet]'" in error.value.advice


def test_one_long_cell_that_stands_in_every_row(tmp_path: Path) -> None:
    """A few hundred bytes that would become gigabytes: the cell is looked at before it is copied."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    long = arrow.DictionaryArray.from_arrays(
        arrow.array([0] * 128, arrow.int32()), arrow.array(["z" * 600_000])
    )
    parquet.write_table(arrow.table({"label": long}), tmp_path / "t.parquet", compression="zstd")
    assert (tmp_path / "t.parquet").stat().st_size < 10_000
    with pytest.raises(Unreadable, match="a cell in column 'label' has more than"):
        list(parquet_file.read(tmp_path / "t.parquet", ["label"], most=128))


def test_what_a_file_claims_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size unpacked, and its rows."""
    path = write_rows(tmp_path / "t.parquet", [{"a": 1}] * 300)
    monkeypatch.setattr(parquet_file, "MOST_ROWS", 299)
    with pytest.raises(Unreadable, match="it says that it has 300 rows; at most 299"):
        parquet_file.name_columns(path)
    monkeypatch.setattr(parquet_file, "SMALL", 9)
    monkeypatch.setattr(parquet_file, "MOST_EXPANDED", 0)
    with pytest.raises(Unreadable, match="would become"):
        parquet_file.name_columns(path)
