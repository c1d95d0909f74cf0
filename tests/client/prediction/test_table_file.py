"""Tables: columns by name or in order, rows that cannot be read, files that are no table."""

from pathlib import Path

import pytest

from pfl_client.prediction.table_file import Columns, TableRows, read_table
from pfl_common.errors import DataError

NAMED = Columns(2, ("age", "weight"))


def read(
    path: Path, text: str, wanted: Columns = NAMED, *, most: int = 2
) -> tuple[list[TableRows], list[tuple[int, str]]]:
    """The blocks of a table with this text, and the rows that are bad."""
    path.write_text(text)
    bad: list[tuple[int, str]] = []
    return list(read_table(path, wanted, most=most, bad=lambda row, why: bad.append((row, why)))), bad


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    """In any order, among others; blocks are small."""
    blocks, bad = read(tmp_path / "t.csv", "weight,name,age\n70,Ann,30\n80,Bob,40\n\n90,Eve,50\n")
    assert [[[30.0, 70.0], [40.0, 80.0]], [[50.0, 90.0]]] == [block.x.tolist() for block in blocks]
    assert [(1, 2), (3,)] == [block.places for block in blocks]
    assert [] == bad


def test_without_names_columns_stand_in_order(tmp_path: Path) -> None:
    """With or without a header; the class and the group are no numbers of the sample."""
    plain = Columns(2)
    assert [[1.0, 2.0]] == read(tmp_path / "a.csv", "1,2\n", plain)[0][0].x.tolist()
    assert [[1.0, 2.0]] == read(tmp_path / "b.csv", "x,y\n1,2\n", plain)[0][0].x.tolist()
    [block], _ = read(tmp_path / "c.csv", "x,ill,who,y\n1,yes,7,2\n", Columns(2, (), "ill", "who"))
    assert ([[1.0, 2.0]], ("yes",), ("7",)) == (block.x.tolist(), block.labels, block.groups)


def test_rows_that_cannot_be_read_are_told_and_left_out(tmp_path: Path) -> None:
    """Their content is not."""
    blocks, bad = read(tmp_path / "t.csv", "age,weight\n30,secret\n31,nan\n32\n33,70\n", most=10)
    assert [[33.0, 70.0]] == blocks[0].x.tolist()
    assert (4,) == blocks[0].places
    assert [(3, "line 4 has 1 cells, the table has 2 columns")] == bad[:1]
    assert [
        (1, "its cell in column 'weight' is no number"),
        (2, "its cell in column 'weight' is missing"),
    ] == bad[1:]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("age,height\n1,2\n", "no column 'weight'"),
        ("age,age\n1,2\n", "two columns 'age'"),
        ("\xff", "no column"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """In words."""
    with pytest.raises(DataError, match=words):
        read(tmp_path / "t.csv", text)


def test_other_encodings_and_widths_are_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and a table of another width."""
    (tmp_path / "t.csv").write_bytes(b"age,weight\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="is not UTF-8"):
        list(read_table(tmp_path / "t.csv", NAMED, most=2, bad=lambda row, why: None))
    with pytest.raises(DataError, match="3 columns of numbers, the run's have 2"):
        read(tmp_path / "w.csv", "1,2,3\n", Columns(2))
