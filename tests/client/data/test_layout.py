"""What kind of data folder this is: each wrong one has a clear end."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from tests.client.support.runs import write_arrays


def fail(path: Path) -> DataError:
    """The error this folder gives."""
    with pytest.raises(DataError) as caught:
        data.describe(DataFolder(path, "site-3"))
    assert caught.value.expected
    assert caught.value.advice
    # What was seen goes to the coordinator with a declined task, and stands on its page.
    assert "/" not in caught.value.seen
    return caught.value


def test_no_such_folder(tmp_path: Path) -> None:
    """A mistyped path is named."""
    error = fail(tmp_path / "nowhere")
    assert "does not exist" in error.seen
    assert str(tmp_path / "nowhere") in error.advice


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """A file given for a folder is named."""
    (tmp_path / "train.npz").write_text("")
    assert "is a file" in fail(tmp_path / "train.npz").seen


def test_an_empty_folder(tmp_path: Path) -> None:
    """An empty folder may be a disk that is not mounted."""
    error = fail(tmp_path)
    assert "is empty" in error.seen
    assert "mounted" in error.advice


@pytest.mark.parametrize("name", ["test.npz", "validation.npz", "shifted.npz"])
def test_arrays_without_a_train_part(tmp_path: Path, name: str) -> None:
    """Nothing is trained on test data."""
    write_arrays(tmp_path)
    (tmp_path / "test.npz").rename(tmp_path / "kept")
    (tmp_path / "train.npz").rename(tmp_path / name)
    assert "no train part" in fail(tmp_path).seen


def test_folders_without_a_train_part(tmp_path: Path) -> None:
    """Nothing is trained on test data, nor divided out of it."""
    (tmp_path / "test" / "cat").mkdir(parents=True)
    assert "no train part" in fail(tmp_path).seen


def test_a_train_folder_without_images(tmp_path: Path) -> None:
    """Images beside the class folders are in no class."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.png").write_text("x")
    assert "class folders" in fail(tmp_path).seen


def test_images_side_by_side(tmp_path: Path) -> None:
    """Images without class folders have no labels."""
    (tmp_path / "1.png").write_text("x")
    assert "one folder per class" in fail(tmp_path).advice


def test_arrays_and_folders(tmp_path: Path) -> None:
    """Which of both is meant is not ours to guess."""
    write_arrays(tmp_path)
    (tmp_path / "train").mkdir()
    assert "holds both" in fail(tmp_path).seen
