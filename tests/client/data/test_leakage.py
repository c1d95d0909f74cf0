"""What is in two parts is warned of, by counts and places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pfl_client import data
from pfl_client.data.fingerprint import UNREADABLE
from pfl_client.data.leakage import warn_of_equal_files, warn_of_equal_samples
from pfl_client.data.picture import Picture
from pfl_client.trainer_process.api import DataFolder
from tests.client.data.test_images import draw, folder


def picture(where: str, label: str = "ill") -> Picture:
    """A picture that is nothing but its place."""
    return Picture(where, label, Path(where), where)


def test_equal_files_in_two_parts(tmp_path: Path) -> None:
    """Whatever they are called: at a site's start and for its doctor."""
    for number in range(6):
        draw(tmp_path / "train" / "cat" / f"{number}.png", colour=number)
        draw(tmp_path / "train" / "dog" / f"{number}.png", colour=100 + number)
    for number in (4, 5, 6):
        draw(tmp_path / "test" / "cat" / f"again-{number}.png", colour=number)
        draw(tmp_path / "test" / "dog" / f"{number}.png", colour=200 + number)
    for warnings in (data.describe(folder(tmp_path)).warnings, data.look_through(tmp_path).warnings):
        (words,) = warnings
        assert "2 of 6 files of test are equal to one of train" in words
        assert "file 1 of test/cat and file 5 of train/cat" in words


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"train": "ab", "validation": "b", "test": "a", "shifted": "b"}, 4),
        ({"train": "ab", "test": "c", "shifted": "c"}, 0),
        ({"train": "aa", "test": "b"}, 0),
    ],
)
def test_parts_that_models_are_made_by(parts: dict[str, str], told: int) -> None:
    """Each of them against those after it; two tests may share what they like, and so may one part."""
    pictures = {
        part: [picture(f"{part} {place}") for place in range(len(digests))] for part, digests in parts.items()
    }
    digests = {
        one.path: digest
        for part, own in pictures.items()
        for one, digest in zip(own, parts[part], strict=True)
    }
    assert told == len(warn_of_equal_files(pictures, digests))


def test_equal_files_of_two_classes() -> None:
    """One of both labels is wrong."""
    pictures = [picture("one"), picture("two", "well"), picture("three", "well")]
    digests = {Path("one"): "a", Path("two"): "a", Path("three"): "b"}
    (words,) = warn_of_equal_files({"train": pictures}, digests)
    assert "1 files have another class" in words
    assert "one and two" in words


def test_unreadable_files_are_not_equal() -> None:
    """Nothing is known of them."""
    parts = {"train": [picture("one")], "test": [picture("two", "well")]}
    assert [] == warn_of_equal_files(parts, {Path("one"): UNREADABLE, Path("two"): UNREADABLE})


def test_equal_samples_of_arrays(tmp_path: Path) -> None:
    """By their contents, as they are stored."""
    x = np.arange(60, dtype=np.float32).reshape(12, 5)
    np.savez(tmp_path / "train.npz", x=x[:8], y=np.arange(8) % 2)
    np.savez(tmp_path / "test.npz", x=x[6:], y=np.arange(6) % 2)
    (words,) = data.describe(DataFolder(tmp_path, "a")).warnings
    assert "2 of 6 samples of test are equal to one of train" in words
    assert "sample 1 of test.npz and sample 7 of train.npz" in words
    assert [] == warn_of_equal_samples({"train": x[:6], "test": x[6:]})
