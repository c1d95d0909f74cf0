"""Lists of pictures with labels: read from any table, and never a file outside the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pfl_client import data
from pfl_client.data import parquet_file, picture_list
from pfl_client.data.records import as_text
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from tests.client.data.test_images import draw, folder, spec

CLASSES = ("ill", "well")


def write_list(path: Path, rows: list[dict[str, str]]) -> Path:
    """A table of these rows, in the format of its name."""
    names = list(rows[0])
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        lines = [names, *([row[name] for name in names] for row in rows)]
        path.write_text("\n".join(",".join(line) for line in lines))
    return path


def draw_listed(path: Path, count: int = 8, *, column: str = "file") -> list[dict[str, str]]:
    """Pictures in one folder, and a row for each."""
    rows = []
    for number in range(count):
        draw(path / "scans" / f"{number}.png", colour=10 * number)
        rows.append({column: f"scans/{number}.png", "label": CLASSES[number % 2]})
    return rows


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("column", picture_list.FILE_COLUMNS)
def test_each_part_has_a_list(tmp_path: Path, suffix: str, column: str) -> None:
    """In the order of its rows, each with its own class."""
    rows = draw_listed(tmp_path, column=column)
    write_list(tmp_path / f"train{suffix}", rows[:5][::-1])
    write_list(tmp_path / f"test{suffix}", rows[5:])
    seen = data.describe(folder(tmp_path))
    assert ((1, 4, 4), CLASSES, 5, "image", ()) == (
        seen.shape,
        seen.classes,
        seen.samples,
        seen.kind,
        seen.warnings,
    )
    read = data.load(folder(tmp_path), spec(classes=CLASSES))
    assert [40, 30, 20, 10, 0] == read.train.x[:, 0, 0, 0].tolist()
    assert ([0, 1, 0, 1, 0], [1, 0, 1]) == (read.train.y.tolist(), read.test.y.tolist())


def test_one_list_says_the_parts(tmp_path: Path) -> None:
    """In its column `part`; a class of it, and files beside it, are nothing."""
    rows = draw_listed(tmp_path)
    parts = ["train"] * 4 + ["validation", "test", "test", "shifted"]
    write_list(
        tmp_path / "samples.csv", [row | {"part": part} for row, part in zip(rows, parts, strict=True)]
    )
    read = data.load(folder(tmp_path), spec(classes=CLASSES))
    assert [4, 1, 2, 1] == [len(part) for part in (read.train, read.validation, read.test, read.shifted)]


@pytest.mark.parametrize("name", ["samples.csv", "data.csv"])
def test_one_list_without_parts_is_divided(tmp_path: Path, name: str) -> None:
    """Always alike, and by whole patients where they are named."""
    rows = draw_listed(tmp_path, 24)
    write_list(tmp_path / name, rows)
    seen = data.describe(folder(tmp_path))
    assert any("a quarter of each class" in words for words in seen.warnings)
    assert 24 - seen.samples in range(2, 12)
    write_list(tmp_path / name, [row | {"patient": f"p{number // 3}"} for number, row in enumerate(rows)])
    read = data.load(folder(tmp_path), spec(classes=CLASSES))
    patients = [{shade // 30 for shade in part.x[:, 0, 0, 0].tolist()} for part in (read.train, read.test)]
    assert all(patients)
    assert not patients[0] & patients[1]


def test_a_patient_in_two_parts_is_warned_of(tmp_path: Path) -> None:
    """Where the site divided itself; the patient is not named, the rows are."""
    rows = [row | {"patient": f"smith-{number % 4}"} for number, row in enumerate(draw_listed(tmp_path))]
    write_list(tmp_path / "train.csv", rows[:5])
    write_list(tmp_path / "test.csv", rows[5:])
    (words,) = data.describe(folder(tmp_path)).warnings
    assert "3 of 3 pictures of test are of the same patient" in words
    assert "line 2 of test.csv and line 3 of train.csv" in words
    assert "smith" not in words


def test_held_back_patients_are_whole(tmp_path: Path) -> None:
    """A validation part that we make out of the training part has patients of its own."""
    rows = draw_listed(tmp_path, 24)
    write_list(
        tmp_path / "train.csv", [row | {"patient": f"p{number // 3}"} for number, row in enumerate(rows)]
    )
    read = data.load(DataFolder(tmp_path, "a", hold_out=0.3), spec(classes=CLASSES))
    sides = [{shade // 30 for shade in part.x[:, 0, 0, 0].tolist()} for part in (read.train, read.validation)]
    assert 8 == len(sides[0] | sides[1])
    assert not sides[0] & sides[1]


@pytest.mark.parametrize(
    "file",
    ["../out.png", "scans/../../out.png", "scans/../scans/1.png", "/etc/passwd", "C:\\x.png", "link/out.png"],
)
def test_a_file_outside_the_folder_is_refused(tmp_path: Path, file: str) -> None:
    """By the row alone; its path is for the terminal."""
    inside = tmp_path / "site"
    rows = draw_listed(inside)
    draw(tmp_path / "elsewhere" / "out.png")
    (inside / "link").symlink_to(tmp_path / "elsewhere")
    write_list(inside / "train.csv", [*rows, {"file": file, "label": "ill"}])
    with pytest.raises(
        DataError, match=r"^line 10 of train\.csv names a file outside the data folder"
    ) as error:
        data.describe(folder(inside))
    assert file not in str(error.value.seen + error.value.advice)
    assert error.value.file


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    """Also where the folder itself is reached through a link."""
    rows = draw_listed(tmp_path / "site")
    (tmp_path / "site" / "newest").symlink_to("scans")
    write_list(tmp_path / "site" / "train.csv", [{"file": "newest/0.png", "label": "ill"}, *rows[1:]])
    (tmp_path / "shown").symlink_to(tmp_path / "site")
    assert 8 == data.describe(folder(tmp_path / "shown")).samples


def test_a_file_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    """As any other that cannot be read: by its row."""
    rows = draw_listed(tmp_path)
    write_list(tmp_path / "train.csv", [{"file": "scans/gone.png", "label": "ill"}, *rows])
    found = data.look_through(tmp_path)
    (bad,) = found.unreadable
    assert ("line 2 of train.csv", "it has gone, or is a link to nothing") == (bad.position, bad.why)
    assert 8 == len(data.load(folder(tmp_path), spec(classes=CLASSES)).train)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"file": "scans/1.png", "label": ""}], "line 2 of train.csv has no label"),
        ([{"file": "", "label": "ill"}], "line 2 of train.csv has no file"),
        ([{"file": "scans/1.png"}], "train.csv has no column 'label'"),
        ([{"file": "scans/1.png", "label": "ill", "part": "test"}], "another part than the list's own"),
    ],
)
def test_rows_that_say_too_little_are_refused(tmp_path: Path, rows: list[dict[str, str]], words: str) -> None:
    """With their line."""
    draw_listed(tmp_path)
    write_list(tmp_path / "train.csv", rows)
    with pytest.raises(DataError, match=words):
        data.describe(folder(tmp_path))


@pytest.mark.parametrize(
    ("said", "words"),
    [('{"groups": "patient"}', "no column 'patient'"), ('{"groups": "folder"}', "'folder' for 'groups'")],
)
def test_groups_that_a_list_does_not_have(tmp_path: Path, said: str, words: str) -> None:
    """What data.json asks for has to be there."""
    write_list(tmp_path / "train.csv", draw_listed(tmp_path))
    (tmp_path / "data.json").write_text(said)
    with pytest.raises(DataError, match=words):
        data.describe(folder(tmp_path))


def test_an_unknown_part_and_a_list_too_many(tmp_path: Path) -> None:
    """Both name what there may be."""
    rows = draw_listed(tmp_path)
    write_list(tmp_path / "samples.csv", [row | {"part": "trian"} for row in rows])
    with pytest.raises(DataError, match=r"line 2 of samples\.csv says an unknown part") as error:
        data.describe(folder(tmp_path))
    assert "'train'" in error.value.advice
    write_list(tmp_path / "train.jsonl", rows)
    with pytest.raises(DataError, match=r"the lists samples\.csv, train\.jsonl"):
        data.describe(folder(tmp_path))


def test_numbers_are_classes_too(tmp_path: Path) -> None:
    """As whole numbers, as floats and as text they are one class, by the one form that all cells are brought to."""
    rows = draw_listed(tmp_path)
    labels = [1, 1.0, "1"]
    assert {"1"} == set(map(as_text, labels))
    for label, name in zip(labels, ("train.parquet", "test.parquet", "validation.csv"), strict=True):
        write_list(tmp_path / name, [row | {"label": label} for row in rows])
    assert ("file", "label") == parquet_file.name_columns(tmp_path / "train.parquet")
    assert ("1",) == data.describe(folder(tmp_path)).classes


def test_a_table_of_measurements_is_no_list(tmp_path: Path) -> None:
    """Nor is one that data.json calls a table."""
    path = write_list(tmp_path / "train.csv", [{"age": "3", "label": "ill"}])
    assert not picture_list.is_list(path)
    assert picture_list.is_list(write_list(tmp_path / "test.csv", [{"path": "3", "label": "ill"}]))
