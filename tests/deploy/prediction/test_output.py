"""Predictions as files: the same answers in each format, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from pfl_client.prediction import Answer, View
from pfl_common.errors import SettingError
from pfl_deploy.prediction import output

CLASSES, HEADS = ("cat", 'd"o,g'), ("global",)
ODD = 'd"o,g'
ANSWERS = [
    Answer(
        Path("a,b.png"),
        None,
        "cat",
        {"cat": 0.75, ODD: 0.25},
        {"global": View("cat", {"cat": 1.0, ODD: 0.0})},
    ),
    Answer(Path("x.npz"), 2, ODD, {"cat": 0.1, ODD: 0.9}, {"global": View("cat", {"cat": 0.6, ODD: 0.4})}),
]
COLUMNS = ["file", "row", "class", "p:cat", 'p:d"o,g', "global.class", "global.p:cat", 'global.p:d"o,g']
ROWS = [
    ["a,b.png", None, "cat", 0.75, 0.25, "cat", 1.0, 0.0],
    ["x.npz", 2, 'd"o,g', 0.1, 0.9, "cat", 0.6, 0.4],
]


def write(path: Path) -> Path:
    """The answers, one after the other."""
    with output.opened(str(path), output.choose_format(str(path), None), CLASSES, HEADS) as out:
        for answer in ANSWERS:
            out.write([answer])
    return path


def test_each_format_holds_the_same(tmp_path: Path) -> None:
    """To the last digit, whatever is in the names."""
    table = list(csv.reader(io.StringIO(write(tmp_path / "a.csv").read_text())))
    assert [COLUMNS, *([("" if cell is None else str(cell)) for cell in row] for row in ROWS)] == table
    lines = [json.loads(line) for line in write(tmp_path / "a.jsonl").read_text().splitlines()]
    assert [[*row[:3]] for row in ROWS] == [[line["file"], line["row"], line["class"]] for line in lines]
    assert {"class": "cat", "probabilities": {"cat": 0.6, 'd"o,g': 0.4}} == lines[1]["heads"]["global"]


def test_parquet_holds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With types; groups of rows are written as they come. One without any rows is a table too."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(output, "_GROUP", 1)
    table = parquet.read_table(write(tmp_path / "a.parquet"))
    assert COLUMNS == table.column_names
    assert ROWS == [list(row.values()) for row in table.to_pylist()]
    with output.opened(str(tmp_path / "none.parquet"), "parquet", CLASSES, HEADS):
        pass
    assert (COLUMNS, 0) == (parquet.read_table(tmp_path / "none.parquet").column_names, 0)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes nothing."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingError) as error:
        write(tmp_path / "a.parquet")
    assert "pfl-net[parquet]" in str(error.value)
    assert [] == list(tmp_path.iterdir())


def test_half_a_file_is_never_there(tmp_path: Path) -> None:
    """The one of before stays until the new one is whole."""
    (tmp_path / "a.csv").write_text("before")
    with pytest.raises(KeyError), output.opened(str(tmp_path / "a.csv"), "csv", CLASSES, HEADS) as out:
        out.write(ANSWERS)
        raise KeyError
    assert "before" == (tmp_path / "a.csv").read_text()
    assert ["a.csv"] == [path.name for path in tmp_path.iterdir()]
    with pytest.raises(SettingError, match="cannot be written"):
        write(tmp_path / "no" / "a.csv")


def test_a_format_follows_from_the_name() -> None:
    """Or is said; a wrong one is an error."""
    formats = [output.choose_format(*words) for words in (("-", None), ("a.jsonl", None), ("a.txt", "csv"))]
    assert ["csv", "jsonl", "csv"] == formats
    with pytest.raises(SettingError, match="no format 'xlsx'"):
        output.choose_format("a.xlsx", None)
