"""Files of rows by part, or one for all; two that say the same part are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client.data.layout import PARTS
from pfl_client.data.row_files import find_rows
from pfl_common.errors import DataError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def test_parts_may_have_different_formats(tmp_path: Path) -> None:
    """Each is read as what its name says."""
    assert find_rows(tmp_path, PARTS) is None
    touch(tmp_path, "train.csv", "test.parquet", "notes.csv")
    found = find_rows(tmp_path, PARTS)
    assert found is not None
    assert ["train.csv", "test.parquet"] == [file.name for file in found.files]
    assert not found.divided


def test_one_file_for_all_parts(tmp_path: Path) -> None:
    """Which this program divides."""
    touch(tmp_path, "data.jsonl")
    found = find_rows(tmp_path, PARTS)
    assert found is not None
    assert found.divided


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("train.csv", "train.parquet"), "holds train.csv and train.parquet"),
        (("train.csv", "test.npz"), "holds train.csv and test.npz"),
        (("data.csv", "test.csv"), "data.csv, which has all samples, and test.csv"),
        (("test.csv",), "has test.csv but no train part"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, names: tuple[str, ...], words: str) -> None:
    """In words that name the files."""
    touch(tmp_path, *names)
    with pytest.raises(DataError, match=words):
        find_rows(tmp_path, PARTS)
