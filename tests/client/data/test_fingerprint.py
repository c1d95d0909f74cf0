"""The fingerprint of a data folder: it changes when a file that is read does, and only then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from tests.client.data.test_images import draw


def look(path: Path, site: str = "hospital_a") -> str:
    """The fingerprint that describing a folder gives."""
    return data.describe(DataFolder(path, site)).data


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Four pictures of two classes."""
    for place in ("train/a/1.png", "train/b/2.png", "test/a/3.png", "test/b/4.png"):
        draw(tmp_path / "here" / place)
    return tmp_path / "here"


def test_a_copy_elsewhere_has_the_same(here: Path, tmp_path: Path) -> None:
    """Neither the folder's place nor the time of its files nor the site's name counts."""
    there = tmp_path / "there"
    shutil.copytree(here, there)
    for file in there.rglob("*.png"):
        os.utime(file, (0, 0))
    assert look(here) == look(there, "another")
    assert 64 == len(look(here))


@pytest.mark.parametrize("change", ["content", "name", "class", "gone"])
def test_each_change_of_what_is_read_is_seen(here: Path, change: str) -> None:
    """A picture that was painted anew, renamed, moved to another class, taken away."""
    file = here / "train" / "a" / "1.png"
    draw(here / "train" / "a" / "0.png")
    before = look(here)
    if change == "content":
        draw(file, colour=10)
    elif change == "name":
        file.rename(file.with_name("7.png"))
    elif change == "class":
        file.rename(here / "train" / "b" / "1.png")
    else:
        file.unlink()
    assert before != look(here)


def test_files_that_are_not_read_do_not_count(here: Path) -> None:
    """The system's own files come and go."""
    before = look(here)
    (here / "train" / "a" / ".DS_Store").write_bytes(b"macOS")
    (here / "notes.txt").write_text("about these images")
    assert before == look(here)


def test_arrays_and_their_names_count(tmp_path: Path) -> None:
    """Each file of arrays, and the list of class names."""
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", x=np.zeros((4, 8, 8), np.uint8), y=np.array([0, 1, 0, 1]))
    without = look(tmp_path)
    (tmp_path / "classes.json").write_text('["cat", "dog"]')
    assert without != look(tmp_path)
