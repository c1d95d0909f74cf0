"""What arrays are taken for: said, never guessed where they could be two things, and `data.json` has the last word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from pfl_client import data
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec import data_description
from pfl_common.spec.run import Model
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec

RNG = np.random.default_rng(0)


def save(path: Path, x: np.ndarray, said: object = None) -> DataFolder:
    """A folder with these samples, half of each class."""
    path.mkdir(parents=True, exist_ok=True)
    np.savez(path / "train.npz", x=x, y=np.arange(len(x)) % 2)
    if said is not None:
        (path / "data.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return DataFolder(path, path.name)


def floats(*shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "float32") -> np.ndarray:
    """Samples that use the whole range."""
    x = RNG.uniform(low, high, shape).astype(dtype)
    x.flat[0], x.flat[-1] = low, high
    return x


@pytest.mark.parametrize(
    ("x", "kind", "shape", "values"),
    [
        (floats(4, 10, 12, 3), "image", (3, 10, 12), "unit"),
        (floats(4, 10, 12, 1, dtype="float64"), "image", (1, 10, 12), "unit"),
        (floats(4, 3, 10, 12, high=255), "image", (3, 10, 12), "byte_floats"),
        (floats(4, 1, 10, 12, low=-1), "image", (1, 10, 12), "signed"),
        (floats(4, 10, 12, 3, high=4095), "image", (3, 10, 12), "signed"),
        (floats(4, 10, 12), "array", (10, 12), "numbers"),
        (floats(4, 10), "table", (10,), "numbers"),
        (floats(4, 10, 12, 14), "array", (10, 12, 14), "numbers"),
        (floats(4, 10, 12, 14, 3), "array", (10, 12, 14, 3), "numbers"),
        (np.zeros((4, 3, 10, 12), np.uint8), "image", (3, 10, 12), "bytes"),
        (np.zeros((4, 2, 2, 3), np.uint8), "image", (3, 2, 2), "bytes"),
        (np.zeros((4, 10, 12), np.uint16), "image", (1, 10, 12), "wide"),
        (np.zeros((4, 10, 12, 3), np.uint16), "image", (3, 10, 12), "wide"),
    ],
)
def test_what_is_recognised(
    tmp_path: Path, x: np.ndarray, kind: str, shape: tuple[int, ...], values: str
) -> None:
    """By type, shape and the range of the training part."""
    seen = data.describe(save(tmp_path, x))
    assert (kind, shape, values) == (seen.kind, seen.shape, seen.values)


@pytest.mark.parametrize("shape", [(4, 6, 6, 3), (4, 3, 6, 6), (4, 7, 20, 1), (4, 1, 20, 7)])
def test_what_could_be_two_things_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Small pictures, or numbers: only the site knows, and the words name the file that says it."""
    with pytest.raises(DataError, match="small pictures, or") as error:
        data.describe(save(tmp_path, floats(*shape)))
    assert "data.json" in error.value.advice
    assert "array" == data.describe(save(tmp_path, floats(*shape), {"kind": "array"})).kind
    assert "image" == data.describe(save(tmp_path, floats(*shape), {"kind": "image"})).kind


def test_what_was_recognised_is_said(tmp_path: Path) -> None:
    """On a line of the site's log."""
    with capture_logs() as lines:
        data.describe(save(tmp_path, floats(4, 10, 12, 3, low=-2, high=3)))
    words = "pictures of other floats, 3x10x12 (channels x height x width), values -2..3"
    assert words in [line.get("recognised") for line in lines]


def test_channels_that_come_last_end_first(tmp_path: Path) -> None:
    """A red dot stays where it was, in floats too."""
    x = floats(4, 10, 12, 3)
    seen = data.describe(folder := save(tmp_path, x))
    run = replace(spec(classes=("0", "1")), model=agree({"a": seen}, Wish()))
    assert x[2, 3, 4].tolist() == pytest.approx(data.load(folder, run).train.x[2, :, 3, 4].tolist())


@pytest.mark.parametrize(("high", "values"), [(1, "unit"), (255, "byte_floats")])
def test_floats_of_pictures_become_0_to_1(tmp_path: Path, high: float, values: str) -> None:
    """By the range they are kept in, the same at all sites, whatever the largest value here is."""
    folder = save(tmp_path, floats(4, 10, 12, 3, high=high * 0.8), {"values": values})
    seen = data.describe(folder)
    run = replace(spec(classes=("0", "1")), model=agree({"a": seen}, Wish()))
    assert (values, 0.8) == (seen.values, pytest.approx(float(data.load(folder, run).train.x.max())))


def test_floats_of_pictures_are_resized_and_coloured(tmp_path: Path) -> None:
    """As bytes are: half dark, half light stays so; grey is repeated, colour becomes its brightness."""
    x = np.zeros((4, 16, 16, 3), np.float32)
    x[:, :, 8:] = (1.0, 0.0, 0.0)
    folder = save(tmp_path, x)
    model = Model("mlp", (1, 8, 8), ("0", "1"), values="unit", low=0, high=1)
    grey = data.load(folder, replace(spec(), model=model)).train.x
    assert (4, 1, 8, 8) == tuple(grey.shape)
    assert pytest.approx([0.0, 0.299], abs=1e-6) == [float(grey[0, 0, 4, 0]), float(grey[0, 0, 4, 7])]


def test_a_named_range_is_that_of_the_values(tmp_path: Path) -> None:
    """What the site knows of its scanner wins over what these pictures happen to use."""
    folder = save(tmp_path, np.full((4, 10, 12), 900, np.uint16), {"range": [0, 4095]})
    assert (0.0, 4095.0) == ((seen := data.describe(folder)).low, seen.high)
    assert (
        "unit"
        == data.describe(
            save(tmp_path / "b", floats(4, 9, 9, 3, low=-0.0, high=0.5), {"range": [0, 1]})
        ).values
    )


def test_numbers_said_to_be_pictures_and_the_reverse(tmp_path: Path) -> None:
    """`kind` and `layout` win over what was recognised."""
    grey = data.describe(save(tmp_path / "a", floats(4, 10, 12), {"kind": "image"}))
    assert ("image", (1, 10, 12)) == (grey.kind, grey.shape)
    table = data.describe(save(tmp_path / "b", np.zeros((4, 10, 12), np.uint8), {"kind": "array"}))
    assert ("array", (10, 12), "numbers") == (table.kind, table.shape, table.values)
    both = floats(4, 3, 9, 3)
    last = data.describe(save(tmp_path / "c", both, {"kind": "image", "layout": "channels_last"}))
    assert (3, 3, 9) == last.shape
    assert (3, 9, 3) == data.describe(
        save(tmp_path / "c", both, {"kind": "image", "layout": "channels_first"})
    ).shape


@pytest.mark.parametrize(
    ("said", "seen", "expected"),
    [
        ("[", "cannot be read", "JSON"),
        ([1], "is no object", "{ }"),
        ({"knd": "image"}, "says 'knd'", "did you mean 'kind'"),
        ({"kind": "images"}, "says \"images\" for 'kind'", "did you mean 'image'"),
        ({"kind": 3}, "says 3 for 'kind'", "known: array, image"),
        ({"kind": ["image"]}, "for 'kind'", "known: array, image"),
        ({"layout": "channel_last"}, "for 'layout'", "did you mean 'channels_last'"),
        ({"values": "floats"}, "for 'values'", "byte_floats"),
        ({"range": [5, 5]}, "for 'range'", "[0, 4095]"),
        ({"range": [0, True]}, "for 'range'", "two numbers"),
        ({"range": "0..1"}, "for 'range'", "two numbers"),
        ('{"range": [0, NaN]}', "for 'range'", "two numbers"),
        ({"values": "wide"}, "says 'wide' for 'values', and the arrays hold pictures of 8 bits", "'bytes'"),
        ({"layout": "channels_first"}, "with 9 channels by the layout 'channels_first'", "1 or 3"),
    ],
)
def test_wrong_words_are_named_with_the_nearest_right_one(
    tmp_path: Path, said: object, seen: str, expected: str
) -> None:
    """In describing and in reading alike."""
    folder = save(tmp_path, np.zeros((4, 9, 9, 3), np.uint8), said)
    for ask in (data.describe, lambda where: data.load(where, spec((3, 9, 9), ("0", "1")))):
        with pytest.raises(DataError) as error:
            ask(folder)
        assert seen in error.value.seen
        assert expected in error.value.expected


def test_what_is_said_is_part_of_the_data(tmp_path: Path) -> None:
    """Another word makes another run."""
    before = data.describe(save(tmp_path, floats(4, 10)))
    assert before.data != data.describe(save(tmp_path, floats(4, 10), {"kind": "array"})).data


def test_pictures_of_another_kind_than_the_runs_are_refused(tmp_path: Path) -> None:
    """0..255 beside 0..1 was accepted once."""
    folder = save(tmp_path, floats(4, 10, 12, 3, high=200))
    run = replace(spec(), model=Model("cnn", (3, 10, 12), ("0", "1"), values="unit", low=0, high=1))
    with pytest.raises(DataError, match=r"floats from 0 to 255.* run .*floats from 0 to 1"):
        data.load(folder, run)


def test_a_range_that_the_values_leave_is_no_lie(tmp_path: Path) -> None:
    """Sums go over all values: what is said beside them has to fit, or the coordinator would send the site away."""
    folder = save(tmp_path / "a", floats(12, 1, 9, 9, low=-1024, high=3000), {"range": [-100, 1000]})
    data_description.check(told := data.describe(folder))
    assert (-1024.0, 3000.0) == (told.low, told.high)


@pytest.mark.parametrize("whole", ["uint8", "uint16"])
def test_a_range_that_cannot_be_is_told_at_home(tmp_path: Path, whole: str) -> None:
    """Before anybody is asked, by the site and by a look through its folder."""
    folder = save(tmp_path / "a", np.ones((6, 9, 9), whole), {"range": [-5, 70000]})
    with pytest.raises(DataError, match="from -5 to 70000") as error:
        data.describe(folder)
    assert "range" in error.value.advice
    assert "from -5 to 70000" in str(data.look_through(folder.path).error)
