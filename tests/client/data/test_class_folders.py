"""Folders between class and picture are groups where the site says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client import data
from pfl_client.data.class_folders import has_folders, list_classes
from pfl_common.errors import DataError
from tests.client.data.test_images import draw, folder, spec


def draw_patients(path: Path, *, first: int = 0, count: int = 6, shade: int = 0) -> Path:
    """Two classes of patients with three pictures each, whose shades tell the patient."""
    for place, label in enumerate(("ill", "well")):
        for patient in range(first + place * count, first + (place + 1) * count):
            for number in range(3):
                draw(
                    path / label / f"Smith {patient:02}" / f"{number}.png",
                    colour=shade + 4 * patient + number,
                )
    return path


def say_groups(path: Path) -> Path:
    """Its data.json."""
    (path / "data.json").write_text('{"groups": "folder"}')
    return path


def patients_of(samples: object) -> set[int]:
    """By the shades."""
    return {shade // 4 for shade in samples.x[:, 0, 0, 0].tolist()}


def test_a_position_names_no_patient(tmp_path: Path) -> None:
    """Folder and file are told by their places."""
    pictures, _ = list_classes(draw_patients(tmp_path), grouped=True)
    first = pictures[0]
    assert ("file 1 of folder 1 of ill", "Smith 00", "ill") == (first.position, first.group, first.label)
    assert (
        "file 3 of folder 6 of train/ill"
        == list_classes(tmp_path, part="train", grouped=True)[0][17].position
    )


def test_an_undivided_folder_is_divided_by_patients(tmp_path: Path) -> None:
    """Nobody is in both parts; both classes are."""
    draw_patients(say_groups(tmp_path))
    seen = data.describe(folder(tmp_path))
    assert any("a quarter of the groups" in words for words in seen.warnings)
    read = data.load(folder(tmp_path), spec(classes=("ill", "well")))
    train, test = patients_of(read.train), patients_of(read.test)
    assert (set(), set(range(12))) == (train & test, train | test)
    assert [0, 1] == sorted(set(read.test.y.tolist()))


def test_a_divided_folder_has_groups_too(tmp_path: Path) -> None:
    """Who is in both parts is warned of, and told to the owner only by number."""
    draw_patients(say_groups(tmp_path) / "train")
    draw_patients(tmp_path / "test", first=5, shade=90, count=2)
    (words,) = data.describe(folder(tmp_path)).warnings
    assert "12 of 12 pictures of test are of the same patient or group as one of train" in words
    assert "Smith" not in words
    assert "of 12 groups that stay together" in data.look_through(tmp_path).layout


def test_folders_in_classes_are_asked_about(tmp_path: Path) -> None:
    """Without a word in data.json there are no pictures in the classes: the error says which word."""
    assert has_folders(draw_patients(tmp_path))
    with pytest.raises(DataError) as error:
        data.describe(folder(tmp_path))
    assert '{"groups": "folder"}' in error.value.advice
    draw_patients(tmp_path / "train")
    with pytest.raises(DataError) as error:
        data.describe(folder(tmp_path))
    assert '{"groups": "folder"}' in error.value.advice


def test_pictures_beside_patients_are_refused(tmp_path: Path) -> None:
    """They would belong to nobody."""
    draw(draw_patients(say_groups(tmp_path)) / "ill" / "0.png")
    with pytest.raises(DataError, match="ill holds 1 files beside its folders"):
        data.describe(folder(tmp_path))


def test_patients_are_a_column_of_lists(tmp_path: Path) -> None:
    """Folders have none."""
    draw_patients(tmp_path)
    (tmp_path / "data.json").write_text('{"groups": "patient"}')
    with pytest.raises(DataError, match="no list of pictures has such a column"):
        data.describe(folder(tmp_path))


@pytest.mark.parametrize("name", ["cat\x1b[2J", "safe\u202egpj", "ca\u200bt"])
def test_the_name_of_a_class_that_a_terminal_obeys(tmp_path: Path, name: str) -> None:
    """Refused before anybody hears of it, in words that show the folder as `ls -b` does."""
    draw(tmp_path / "train" / name / "1.png")
    with pytest.raises(DataError) as error:
        list_classes(tmp_path / "train", part="train")
    assert str(error.value).replace("\n", "").isprintable()
    assert "ls -b" in error.value.advice
