"""Tables in three formats give the same cells, and what cannot be read is named by its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pfl_client.data.record_file import RecordFile
from pfl_common.errors import DataError

TABLE = {"age": (1, None, 3.5), "sex": ("f", " m ", ""), "smokes": (True, False, None)}
CELLS = {"age": ("1", "", "3.5"), "sex": ("f", "m", ""), "smokes": ("true", "false", "")}


def csv(folder: Path) -> Path:
    path = folder / "t.csv"
    path.write_text("\ufeffage, sex ,smokes\n1,f,true\n,m,false\n3.5,,\n", encoding="utf-8")
    return path


def jsonl(folder: Path) -> Path:
    path = folder / "t.jsonl"
    path.write_text(
        '{"age": 1.0, "sex": "f", "smokes": true}\n\n{"sex": " m ", "smokes": false}\n{"age": 3.5, "sex": null}\n'
    )
    return path


def parquet(folder: Path) -> Path:
    arrow = pytest.importorskip("pyarrow")
    path = folder / "t.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(
        arrow.table({k: list(v) for k, v in TABLE.items()}), path
    )
    return path


@pytest.mark.parametrize("make", [csv, jsonl, parquet])
def test_cells_are_equal_in_every_format(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """Numbers, texts, truths and missing cells; a whole number has no point in any of them."""
    file = RecordFile(make(tmp_path))

    (rows,) = file.read()

    assert tuple(TABLE) == file.names
    assert CELLS == rows.columns
    assert (1, 2, 3) == rows.places


@pytest.mark.parametrize("make", [csv, jsonl, parquet])
def test_rows_come_in_blocks_of_the_columns_asked_for(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """In the order in which they are asked for."""
    blocks = list(RecordFile(make(tmp_path)).read(["sex", "age"], most=2))

    assert [(1, 2), (3,)] == [block.places for block in blocks]
    assert {"sex": ("f", "m"), "age": ("1", "")} == blocks[0].columns


def test_lines_are_those_an_editor_shows(tmp_path: Path) -> None:
    """The header, empty lines and lines within quotation marks count."""
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,2\n\n3,"x\ny"\n5,6\n')

    (rows,) = RecordFile(path).read()

    assert (2, 5, 6) == rows.lines


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.csv", "a,b\nsecret\n", "line 2 has 1 cells"),
        ("t.csv", 'a,b\n1,"secret" x\n', "line 2 has quotation marks"),
        ("t.csv", "a,a\nsecret,1\n", "two columns 'a'"),
        ("t.csv", "a;b\nsecret;1\n", "line 1 has no commas"),
        ("t.csv", "", "is empty"),
        ("t.jsonl", '{"a": 1}\nsecret\n', "line 2 is no JSON object"),
        ("t.jsonl", '{"a": 1}\n{"a": ["secret"]}\n', "line 2: the cell in column 'a' is neither"),
        ("t.parquet", "secret", "no Parquet that can be read"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_place(name: str, text: str, words: str, tmp_path: Path) -> None:
    """And no error shows a cell."""
    if name == "t.parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(DataError) as error:
        list(RecordFile(path, called="train.csv").read())

    assert words in str(error.value)
    assert error.value.seen.startswith("train.csv")
    assert "secret" not in str(error.value)


def test_a_bad_row_can_be_told_of_and_left_out(tmp_path: Path) -> None:
    """The rows after it keep their places."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n5,6\n")
    told: list[tuple[int, str]] = []

    (rows,) = RecordFile(path).read(bad=lambda place, why: told.append((place, why)))

    assert (1, 3) == rows.places
    assert [(2, "line 3 has 1 cells, the table has 2 columns")] == told


def test_a_table_of_numbers_alone_may_have_no_header(tmp_path: Path) -> None:
    """Its columns are then called by their places."""
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n")

    file = RecordFile(path, headless=True)

    assert ("1", "2") == file.names
    assert {"1": ("1", "3"), "2": ("2", "4")} == next(file.read()).columns


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no text at all may be one line of gigabytes."""
    monkeypatch.setattr("pfl_client.data.record_file.LONGEST_LINE", 10)
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1" * 11)

    with pytest.raises(DataError, match="more than 10 letters"):
        list(RecordFile(path).read())


@pytest.mark.parametrize("open_end", ['"', '"a\n","b', "x" * 99], ids=["one cell", "many cells", "a line"])
def test_a_row_without_end(open_end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotation marks join lines to one row: it is bounded as a line is."""
    monkeypatch.setattr("pfl_client.data.record_file.LONGEST_LINE", 4096)
    path = tmp_path / "t.csv"
    path.write_text("age,sex\n1,f\n" + '"a\n",' * 2000 + open_end)
    with pytest.raises(DataError, match="more than 4096 letters"):
        list(RecordFile(path).read())


def test_long_rows_come_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is bounded by its letters too."""
    monkeypatch.setattr("pfl_client.data.record_file.BLOCK_LETTERS", 100)
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + f"{'x' * 30},{'y' * 30}\n" * 5)
    assert [(1, 2), (3, 4), (5,)] == [block.places for block in RecordFile(path).read()]


def test_half_a_sign_in_json(tmp_path: Path) -> None:
    """JSON can name what no file can hold: it is told by its place, in a cell and in a name."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": "\\ud800"}\n')
    with pytest.raises(DataError, match="line 1: the cell in column 'a' holds half a sign"):
        list(RecordFile(path).read())
    path.write_text('{"\\ud800": 1}\n')
    with pytest.raises(DataError, match="a name that holds half a sign"):
        RecordFile(path)
