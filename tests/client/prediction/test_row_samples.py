"""Rows to predict: by the run's columns, words and windows; rows that cannot be read are told, the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client.data.declaration import Declared
from pfl_client.prediction.row_samples import RowSamples, choose_label, read_samples, read_windows, reads_rows
from pfl_client.prediction.table_file import Roles
from pfl_common.errors import DataError
from pfl_common.spec.run import Model
from pfl_common.spec.table_schema import Column

AGE, WARD = Column("age", mean=40, deviation=10), Column("ward", categorical=True, categories=("a",))
TABLE = Model("mlp", (3,), ("well", "ill"), kind="table", values="numbers", table=(AGE, WARD))
TEXTS = Model("fasttext", (2,), ("well", "ill"), kind="tokens", tokens=3, numbering="words", words=("fever",))
WINDOWS = Model("har_cnn", (1, 4), ("well", "ill"), kind="windows", values="numbers", columns=("x",))


def read(
    path: Path,
    text: str,
    model: Model,
    roles: Roles = Roles(),  # noqa: B008  # frozen
) -> tuple[list[RowSamples], list[tuple[int, str]]]:
    path.write_text(text)
    bad: list[tuple[int, str]] = []
    return list(read_samples(path, model, roles, most=2, bad=lambda row, why: bad.append((row, why)))), bad


def test_rows_as_the_run_reads_them(tmp_path: Path) -> None:
    """Columns by name, in any order, among others; small blocks."""
    blocks, bad = read(tmp_path / "t.csv", "ward,id,age\na,9,50\nb,9,\na,9,30\n", TABLE)
    assert [[[1, 1, 0], [0, 0, 1]], [[-1, 1, 0]]] == [block.x.tolist() for block in blocks]
    assert [(1, 2), (3,)] == [block.places for block in blocks]
    assert [] == bad


def test_rows_that_cannot_be_read_are_told_and_left_out(tmp_path: Path) -> None:
    """Without what they hold; a row without a class only where classes are wanted."""
    text = "age,ward,label\nsecret,a,ill\n50,a,\n30,b,well\n"
    [block], bad = read(tmp_path / "t.csv", text, TABLE, Roles("label"))
    assert ((3,), ("well",)) == (block.places, block.labels)
    assert [1, 2] == [row for row, _ in bad]
    assert "secret" not in str(bad)
    assert [2, 1] == [
        len(block.places) for block in read(tmp_path / "t.csv", text.replace("secret", "1"), TABLE)[0]
    ]


def test_a_column_of_the_run_has_to_be_there(tmp_path: Path) -> None:
    """Unless a site of the run lacked it too."""
    with pytest.raises(DataError, match="no column 'ward'"):
        read(tmp_path / "t.csv", "age\n50\n", TABLE)
    holed = Model("mlp", (2,), ("a", "b"), kind="table", table=(Column("x", missing=True),))
    [block], _ = read(tmp_path / "t.csv", "age\n50\n", holed)
    assert [[0, 1]] == block.x.tolist()


def test_texts_and_windows(tmp_path: Path) -> None:
    """By the same rules as a site's own."""
    [block], _ = read(tmp_path / "t.jsonl", '{"text": "Fever? yes"}\n', TEXTS)
    assert [[2, 1]] == block.x.tolist()
    (tmp_path / "r.csv").write_text("time,x\n" + "".join(f"{t},{t}\n" for t in range(6)))
    assert [[[0, 1, 2, 3]], [[2, 3, 4, 5]]] == read_windows(tmp_path / "r.csv", WINDOWS, Declared()).tolist()


def test_which_column_is_the_class(tmp_path: Path) -> None:
    """The named one, that of data.json, or the usual one if it is there."""
    (tmp_path / "t.csv").write_text("age,label\n1,ill\n")
    for named, said, label in (("a", "b", "a"), ("", "b", "b"), ("", None, "label")):
        assert label == choose_label(tmp_path / "t.csv", named, Declared(label=said), default="label")
    assert "" == choose_label(tmp_path / "t.csv", "", Declared(), default="class")
    assert [True, True, False] == [reads_rows(model) for model in (TABLE, TEXTS, WINDOWS)]
