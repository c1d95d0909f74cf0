"""Rows with a class: which columns are what, which rows are left out, and a division that always falls out alike."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pfl_client.data.declaration import Declared
from pfl_client.data.labelled_rows import LabelledRows, Roles, find_roles
from pfl_client.data.layout import PARTS
from pfl_client.data.row_files import find_rows
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from tests.client.data.written import make_patients, write_rows

ROWS = make_patients()


def opened(folder: Path, declared: Declared = Declared(), *, strict: bool = False) -> LabelledRows:  # noqa: B008  # frozen
    found = find_rows(folder, PARTS)
    assert found is not None
    return LabelledRows(found, declared, DataFolder(folder, "hospital_a", strict))


def parts_of(rows: LabelledRows) -> dict[str, Counter[tuple[str, ...]]]:
    """The cells of each row, by part."""
    return {
        part: Counter(
            row
            for _, block in rows.read(part, rows.roles.features)
            for row in zip(*(block.columns[name] for name in sorted(rows.roles.features)), strict=True)
        )
        for part in ("train", "test")
    }


def without_patients() -> list[dict[str, object]]:
    return [{name: cell for name, cell in row.items() if name != "patient"} for row in ROWS]


def test_an_undivided_file_is_divided_alike_in_every_order_and_format(tmp_path: Path) -> None:
    """By what the rows hold: neither their order, nor that of the columns, nor the format changes a part."""
    rows = without_patients()
    first = parts_of(opened(write_rows(tmp_path / "a" / "data.csv", rows).parent))
    turned = [dict(reversed(row.items())) for row in rows]
    assert first == parts_of(opened(write_rows(tmp_path / "b" / "data.jsonl", turned[::-1]).parent))
    assert 48 == first["train"].total() + first["test"].total()
    assert 6 <= first["test"].total() <= 18


def test_a_new_row_moves_no_other(tmp_path: Path) -> None:
    """What a run was tested on is not trained on by the next."""
    rows = without_patients()
    before = parts_of(opened(write_rows(tmp_path / "a" / "data.csv", rows[:-1]).parent))
    after = parts_of(opened(write_rows(tmp_path / "b" / "data.csv", rows).parent))
    assert not before["test"] - after["test"]
    assert not before["train"] - after["train"]


def test_a_patient_is_never_in_two_parts(tmp_path: Path) -> None:
    """And is no feature; each class is in both parts."""
    rows = opened(write_rows(tmp_path / "data.csv", ROWS).parent)
    train, test = set(rows.groups("train")), set(rows.groups("test"))
    assert test
    assert not train & test
    assert ("age", "sex", "ward") == rows.roles.features
    assert {"well", "ill"} == set(rows.counts["train"]) == set(rows.counts["test"])


def test_patients_in_two_parts_of_the_site_are_warned_of(tmp_path: Path) -> None:
    """By their number, not by their names."""
    write_rows(tmp_path / "train.csv", ROWS[:9])
    write_rows(tmp_path / "test.csv", ROWS[9:])
    words = " ".join(opened(tmp_path).warnings())
    assert "1 patients have rows in the training part and in another one" in words
    assert "p4" not in words


def test_rows_without_a_class_are_left_out_and_counted(tmp_path: Path) -> None:
    """Or are an error, with --strict-data; the line is named."""
    write_rows(tmp_path / "train.csv", [*ROWS[:4], {**ROWS[4], "label": None}, *ROWS[5:9]])
    rows = opened(tmp_path)
    assert 8 == rows.counts["train"].total()
    assert (
        "1 rows of train.csv cannot be used and are left out; the first: line 6 has no class"
        in rows.warnings()
    )
    with pytest.raises(DataError, match=r"train\.csv: line 6 has no class"):
        opened(tmp_path, strict=True)


def test_a_row_without_a_patient_is_by_itself(tmp_path: Path) -> None:
    """It belongs to no other such row."""
    write_rows(tmp_path / "train.csv", [{**row, "patient": None} for row in ROWS[:4]])
    assert 4 == len(set(opened(tmp_path).groups("train")))


def test_roles_are_named_in_data_json() -> None:
    """By their names; what is left out is no feature."""
    said = Declared(kind="table", label="outcome", patient="id", leave_out=("name",))
    assert Roles("outcome", "id", ("age",)) == find_roles(
        ["name", "id", "age", "outcome"], said, called="train.csv"
    )
    assert Roles("label", "", ("age",)) == find_roles(["label", "age"], Declared(), called="train.csv")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Declared(label="outcom"), "no column 'outcom'"),
        (Declared(leave_out=("x",)), "no column 'x'"),
        (Declared(patient="label"), "as the class and as the patient"),
    ],
)
def test_columns_that_are_not_there_are_refused(said: Declared, words: str) -> None:
    """Whatever data.json says of them."""
    with pytest.raises(DataError, match=words):
        find_roles(["label", "age"], said, called="train.csv")


def test_parts_have_the_same_columns(tmp_path: Path) -> None:
    """One that is missing in the test file alone is a slip of the pen."""
    write_rows(tmp_path / "train.csv", ROWS[:9])
    write_rows(tmp_path / "test.csv", [{"patient": "p", "age": 1, "sex": "f", "label": "ill"}])
    with pytest.raises(DataError, match=r"test\.csv has no column 'ward'"):
        opened(tmp_path)
