"""Site folders: what is written can be read back, equal data give equal bytes, nothing is overwritten."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from pfl_common.errors import DataError, SettingError
from pfl_deploy.datasets.labelled import ClientData, Labelled, Source
from pfl_deploy.datasets.partitions import Share, hold_out, iid, with_validation
from pfl_deploy.datasets.write_site import write_folder
from pfl_deploy.datasets.write_sites import write_split


def some(count, *shape, seed=0, classes=3):
    """Random pictures with labels that go round the classes."""
    x = np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)
    return Labelled(x, np.arange(count, dtype=np.int64) % classes)


def toy(*shape, validation=True, classes=("ant", "bee", "cow")):
    """One site's data."""
    return ClientData(
        classes,
        some(6, *shape),
        some(4, *shape, seed=1),
        some(3, *shape, seed=2) if validation else None,
        {"seed": 5},
    )


def contents(folder):
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def numbered(total=40):
    """A source whose examples are their own numbers, 30 to train and 10 to test."""
    x = np.arange(total, dtype=np.uint8).reshape(-1, 1, 1)
    part = Labelled(x, np.arange(total, dtype=np.int64) % 2)
    keep = np.arange(total)
    return Source("toy", ("even", "odd"), part.take(keep[:30]), part.take(keep[30:]), licence="none needed")


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_npz_holds_the_arrays_and_the_class_names(tmp_path, shape):
    """x as it was, y as int64, names in index order, where it comes from beside it."""
    data = toy(*shape)
    folder = write_folder(tmp_path / "site", data)
    for name, part in data.splits().items():
        with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
            assert {"x", "y"} == set(stored.files)
            assert np.array_equal(part.x, stored["x"])
            assert np.array_equal(part.y, stored["y"])
            assert (np.uint8, np.int64) == (stored["x"].dtype, stored["y"].dtype)
    assert ["ant", "bee", "cow"] == json.loads((folder / "classes.json").read_text())
    assert {"seed": 5} == json.loads((folder / "origin.json").read_text())


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 1), (5, 4, 3)])
def test_images_lie_under_their_class(tmp_path, shape):
    """train/<class>/<number>.png with the same pixels."""
    data = toy(*shape)
    folder = write_folder(tmp_path / "site", data, form="images")
    for name, part in data.splits().items():
        seen = sorted(path.relative_to(folder).as_posix() for path in (folder / name).rglob("*.png"))
        expected = [f"{name}/{data.classes[label]}/{number:05d}.png" for number, label in enumerate(part.y)]
        assert sorted(expected) == seen
        for path, pixels in zip(expected, part.x, strict=True):
            with Image.open(folder / path) as image:
                assert np.array_equal(pixels.squeeze(), np.asarray(image))


def test_a_missing_validation_part_leaves_no_trace(tmp_path):
    """No empty file, no empty folder."""
    for form in ("npz", "images"):
        folder = write_folder(tmp_path / form, toy(5, 4, validation=False), form=form)
        assert not [path for path in contents(folder) if path.startswith("validation")]


@pytest.mark.parametrize("form", ["npz", "images"])
def test_equal_data_give_equal_bytes(tmp_path, form):
    """The clock and the order of notes do not matter."""
    data = toy(5, 4)
    turned = ClientData(data.classes, data.train, data.test, data.validation, {"b": 1, "a": {"d": 2, "c": 3}})
    straight = ClientData(
        data.classes, data.train, data.test, data.validation, {"a": {"c": 3, "d": 2}, "b": 1}
    )
    first, second = (
        contents(write_folder(tmp_path / name, d, form=form)) for name, d in (("1", turned), ("2", straight))
    )
    assert first == second
    for content in first.values():
        # a zip member's time stamp: 1980-01-01, 00:00, the constant for "none"
        assert not content.startswith(b"PK") or content[10:14] == b"\x00\x00\x21\x00"


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    """Neither overwritten nor mixed with; an empty one is used."""
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", toy(5, 4))
    before = contents(tmp_path / "empty")
    with pytest.raises(DataError, match="not empty"):
        write_folder(tmp_path / "empty", toy(6, 6))
    assert before == contents(tmp_path / "empty")


def test_a_failure_leaves_no_half_folder(tmp_path):
    """Class names that cannot be folders are refused, and what was begun is gone."""
    with pytest.raises(DataError, match="cannot be a folder"):
        write_folder(tmp_path / "site", toy(5, 4, classes=("ant", "../bee", "cow")), form="images")
    assert [] == list(tmp_path.iterdir())


def test_only_pictures_can_be_written_as_images(tmp_path):
    """Rows of numbers need the npz form, and the error says so."""
    rows = Labelled(np.zeros((4, 6), np.float32), np.zeros(4, np.int64))
    with pytest.raises(DataError, match="use the npz form"):
        write_folder(tmp_path / "site", ClientData(("a",), rows, rows), form="images")


def test_an_unknown_form_is_named(tmp_path):
    """With the nearest right one."""
    with pytest.raises(SettingError, match="did you mean 'images'"):
        write_folder(tmp_path / "site", toy(5, 4), form="image")


def test_a_split_puts_every_example_into_one_folder(tmp_path):
    """Three sites of 40 numbered examples: every number once, and the validation part set aside."""
    source = numbered()
    shares = with_validation(
        hold_out(iid(source.pooled().y, clients=3, seed=0), seed=0), fraction=0.2, seed=0
    )
    folders = write_split(source, shares, tmp_path, origin={"partition": "iid"})
    assert ["site_00", "site_01", "site_02"] == [folder.name for folder in folders]
    seen = []
    for folder in folders:
        for part in ("train", "validation", "test"):
            with np.load(folder / f"{part}.npz") as stored:
                assert (stored["x"].ravel() % 2).tolist() == stored["y"].tolist()
                seen += stored["x"].ravel().tolist()
    assert list(range(40)) == sorted(seen)
    assert "iid" == json.loads((folders[1] / "origin.json").read_text())["partition"]


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (Share(np.array([0, 1]), np.array([1, 2])), "train and test share"),
        (Share(np.array([0]), np.array([40])), "beyond the 40"),
        (Share(np.array([-1]), np.array([2])), "beyond the 40"),
        (Share(np.array([], int), np.array([2])), "no train examples"),
        (Share(np.array([0]), np.array([2]), np.array([2])), "validation and test share"),
    ],
)
def test_a_bad_share_stops_the_whole_split(tmp_path, share, words):
    """Found before the first folder is written."""
    good = Share(np.array([5]), np.array([6]))
    with pytest.raises(DataError, match=f"site 1.*{words}"):
        write_split(numbered(), [good, share], tmp_path / "out")
    assert not (tmp_path / "out").exists()
