"""Files of arrays: what is described, what is read, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import Model, RunSpec
from tests.client.support.runs import write_arrays


def spec(shape: tuple[int, ...] = (1, 6, 6), classes: tuple[str, ...] = ("cat", "dog", "owl")) -> RunSpec:
    """A run that only says what its samples are like."""
    return RunSpec("r", "fedavg", {}, Model("mlp", shape, classes), rounds=1, seed=5, roster=("site-3",))


def save(path: Path, part: str = "train", **arrays: np.ndarray) -> DataFolder:
    """One file of arrays."""
    np.savez(path / f"{part}.npz", **arrays)
    return DataFolder(path, "site-3")


def fail(folder: DataFolder) -> DataError:
    """The error this folder gives, in describing and in reading alike."""
    with pytest.raises(DataError) as described:
        data.describe(folder)
    with pytest.raises(DataError) as caught:
        data.load(folder, spec())
    assert str(described.value) == str(caught.value)
    assert caught.value.expected
    assert caught.value.advice
    return caught.value


def test_arrays_are_described(tmp_path: Path) -> None:
    """Grey images as bytes have one channel; names come from classes.json."""
    seen = data.describe(DataFolder(write_arrays(tmp_path), "site-3"))
    assert ((1, 6, 6), ("cat", "dog", "owl"), 24, "image", ()) == (
        seen.shape,
        seen.classes,
        seen.samples,
        seen.kind,
        seen.warnings,
    )


def test_arrays_are_read(tmp_path: Path) -> None:
    """Bytes stay bytes, channels come first, and the run numbers the classes."""
    folder = DataFolder(write_arrays(tmp_path), "site-3")
    read = data.load(folder, spec(classes=("ant", "owl", "dog", "cat")))
    assert (torch.uint8, (24, 1, 6, 6)) == (read.train.x.dtype, tuple(read.train.x.shape))
    assert [3, 2, 1, 3] == read.train.y[:4].tolist()
    assert (8, 0) == (len(read.test), len(read.validation))


def test_a_shifted_test_is_read_where_there_is_one(tmp_path: Path) -> None:
    """A part of its own, in the run's shape and classes, which takes nothing from the others."""
    folder = DataFolder(write_arrays(tmp_path), "site-3")
    before, without = data.describe(folder), data.load(folder, spec())
    assert 0 == len(without.shifted)
    x = np.full((5, 6, 6), 9, np.uint8)
    np.savez(tmp_path / "shifted.npz", x=x, y=np.array([2, 1, 0, 1, 2]))
    after = data.describe(folder)
    assert replace(before, data=after.data) == after
    assert before.data != after.data, "a run on other data is another run"
    read = data.load(folder, spec(classes=("ant", "owl", "dog", "cat")))
    assert (5, 1, 6, 6) == tuple(read.shifted.x.shape)
    assert [1, 2, 3, 2, 1] == read.shifted.y.tolist()
    assert without.train.x.equal(read.train.x)
    assert without.test.x.equal(read.test.x)
    np.savez(tmp_path / "shifted.npz", x=x[:1], y=np.array([3]))
    (tmp_path / "classes.json").write_text('["cat", "dog", "owl", "yak"]')
    assert "no training samples of 'yak'" in data.describe(folder).warnings


def test_colour_comes_with_channels_first(tmp_path: Path) -> None:
    """A red dot stays where it was."""
    x = np.zeros((2, 4, 5, 3), dtype=np.uint8)
    x[0, 1, 2] = (255, 1, 2)
    folder = save(tmp_path, x=x, y=np.array([0, 1]))
    assert (3, 4, 5) == data.describe(folder).shape
    read = data.load(folder, spec((3, 4, 5), ("0", "1")))
    assert [255, 1, 2] == read.train.x[0, :, 1, 2].tolist()


def test_without_names_the_numbers_are_the_names(tmp_path: Path) -> None:
    """Labels 1, 3 and 10 are three classes and no eleven; "no test part" is a warning."""
    folder = save(tmp_path, x=np.zeros((3, 6, 6), np.uint8), y=np.array([10, 1, 3]))
    seen = data.describe(folder)
    assert ("1", "3", "10") == seen.classes
    assert [2, 0, 1] == data.load(folder, spec(classes=seen.classes)).train.y.tolist()
    assert ("no test samples: this site's accuracy will not be measured",) == seen.warnings


def test_images_are_brought_to_the_runs_shape(tmp_path: Path) -> None:
    """Bytes are images: they are resized and coloured like image files."""
    folder = DataFolder(write_arrays(tmp_path), "site-3")
    read = data.load(folder, spec((3, 4, 4)))
    assert (24, 3, 4, 4) == tuple(read.train.x.shape)
    assert read.train.x[:, 0].equal(read.train.x[:, 2])
    assert (0, 3, 4, 4) == tuple(read.validation.x.shape)


def test_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    """Sensor readings keep their values and their shape; float64 becomes float32."""
    x = np.linspace(-1, 1, 24).reshape(2, 4, 3)
    folder = save(tmp_path, x=x, y=np.array([0, 1], dtype=np.uint8))
    assert ("array", (4, 3)) == (data.describe(folder).kind, data.describe(folder).shape)
    read = data.load(folder, spec((4, 3), ("0", "1")))
    assert torch.float32 == read.train.x.dtype
    assert read.train.x.equal(torch.tensor(x, dtype=torch.float32))


def test_numbers_of_another_shape_are_refused(tmp_path: Path) -> None:
    """Both shapes are named."""
    folder = save(tmp_path, x=np.zeros((2, 4, 3), np.float32), y=np.array([0, 1]))
    with pytest.raises(DataError, match=r"site-3 .*float32 \(4, 3\).* run .*\(1, 6, 6\)"):
        data.load(folder, spec(classes=("0", "1")))


def test_a_named_class_without_samples_may_be_unknown(tmp_path: Path) -> None:
    """Only classes with samples must be the run's."""
    write_arrays(tmp_path)
    (tmp_path / "classes.json").write_text(json.dumps(["cat", "dog", "owl", "yak"]))
    assert 24 == len(data.load(DataFolder(tmp_path, "site-3"), spec()).train)
    with pytest.raises(DataError, match="class 'owl'"):
        data.load(DataFolder(tmp_path, "site-3"), spec(classes=("cat", "dog", "yak")))


Y = np.array([0, 1])
X = np.zeros((2, 6, 6), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X}, "holds x"),
        ({"x": X, "y": np.array([0])}, "2 samples in x and 1 labels"),
        ({"x": X, "y": np.array([0.0, 1.0])}, "y of train.npz is float64"),
        ({"x": X, "y": np.array([[0], [1]])}, r"y of train.npz is int64(2, 1)"),
        ({"x": X, "y": np.array([0, -1])}, "label -1"),
        ({"x": X.astype(np.int64), "y": Y}, "x of train.npz is int64"),
        ({"x": np.zeros((2, 3, 6, 6), np.uint8), "y": Y}, "x of train.npz is uint8"),
        ({"x": np.zeros(2, np.float32), "y": Y}, "x of train.npz is float32"),
        (
            {"x": np.array([[1.0, np.nan], [0.0, 0.0]]), "y": Y},
            "NaN or infinity in 1 of 2 samples, first in sample 1",
        ),
        ({"x": np.array([[1.0, 0.0], [0.0, 1e300]]), "y": Y}, "first in sample 2"),
        ({"x": X[:0], "y": Y[:0]}, "holds no samples"),
        ({"x": np.array([object(), None]), "y": Y}, "cannot be read as arrays"),
    ],
)
def test_wrong_arrays_have_a_clear_end(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    """What was seen is in the error; Python objects are never loaded."""
    assert words in fail(save(tmp_path, **arrays)).seen


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04broken"])
def test_a_file_that_is_no_archive(tmp_path: Path, content: bytes) -> None:
    """A file of something else has a clear end."""
    (tmp_path / "train.npz").write_bytes(content)
    assert "cannot be read as arrays" in fail(DataFolder(tmp_path, "site-3")).seen


def test_a_single_array_is_not_enough(tmp_path: Path) -> None:
    """A .npy file under the name of an archive is told apart."""
    with (tmp_path / "train.npz").open("wb") as file:
        np.save(file, X)
    assert "a single array" in fail(DataFolder(tmp_path, "site-3")).seen


def test_parts_of_different_shape(tmp_path: Path) -> None:
    """Training and test samples must be alike."""
    save(tmp_path, x=X, y=Y)
    assert "uint8 (1, 5, 6)" in fail(save(tmp_path, "test", x=X[:, :5], y=Y)).seen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["cat"]', "label 1, classes.json names 1 classes"),
        ('["cat", "cat"]', "'cat' twice"),
        ('{"cat": 0}', "no list of names"),
        ("[1, 2]", "no list of names"),
        ("[", "no list of names"),
    ],
)
def test_wrong_names_have_a_clear_end(tmp_path: Path, text: str, words: str) -> None:
    """classes.json is checked against itself and the labels."""
    folder = save(tmp_path, x=X, y=Y)
    (tmp_path / "classes.json").write_text(text)
    assert words in fail(folder).seen


@pytest.mark.parametrize("label", [20_000, 10**8, 2**62])
def test_a_label_that_would_name_millions_of_classes(tmp_path: Path, label: int) -> None:
    """One label of 100,000,000 took 6 GB: nothing is made for each number up to it."""
    folder = save(tmp_path, x=np.zeros((2, 6, 6), np.uint8), y=np.array([0, label]))
    assert f"train.npz has the label {label}" == fail(folder).seen
