"""From the package registry to site folders: the four domains that need nothing but npm and pip packages."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np

from pfl_deploy.datasets import drawing, sources
from pfl_deploy.datasets.domains import SHIFTED, SPLITS, Sizes, Workshop, mnist_share

FOUR = ("mnist", "mnist_m", "optdigits", "synth")


def contents(folder):
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_four_domains_from_real_data(tmp_path):
    """Folders that can be read, the same bytes twice, real digits in their frame."""
    sizes = Sizes(train=300, validation=50, test=100)
    for name in ("one", "two"):
        folders = Workshop(seed=1, sizes=sizes).write(tmp_path / name, names=FOUR)
        assert [tmp_path / name / domain for domain in FOUR] == folders
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    for domain in FOUR:
        assert list("0123456789") == json.loads((tmp_path / "one" / domain / "classes.json").read_text())
        there = SPLITS if domain in SHIFTED else SPLITS[:-1]
        assert set(there) == {file.stem for file in (tmp_path / "one" / domain).glob("*.npz")}
        for split in there:
            with np.load(tmp_path / "one" / domain / f"{split}.npz") as stored:
                assert (sizes.of(split), 32, 32, 3) == stored["x"].shape
                assert (np.uint8, np.int64) == (stored["x"].dtype, stored["y"].dtype)
                assert set(range(10)) == set(stored["y"].tolist())
    source = sources.mnist()
    assert (60_000, 10_000) == (len(source.train), len(source.test))
    with (
        np.load(tmp_path / "one" / "mnist" / "test.npz") as plain,
        np.load(tmp_path / "one/mnist_m/test.npz") as mixed,
    ):
        mine, theirs = (source.test.take(mnist_share(name, "test", 100, seed=1)) for name in FOUR[:2])
        assert np.array_equal(mine.x, plain["x"][:, 2:30, 2:30, 1])
        assert 0 == plain["x"][:, :2].max()
        assert theirs.y.tolist() == mixed["y"].tolist()


def test_no_source_digit_is_in_two_parts_or_domains(monkeypatch):
    """By content: no ground hides the digits of mnist_m here, so the ink of both domains can be compared."""
    monkeypatch.setattr(drawing, "photo_patch", lambda *_, **__: np.zeros((32, 32, 3), np.uint8))
    shop = Workshop(seed=1, sizes=Sizes(400, 100, 300))
    made = {name: shop.make(name) for name in ("mnist", "mnist_m", "optdigits")}
    seen = Counter(x.tobytes() for data in made.values() for part in data.splits().values() for x in part.x)
    assert 3 * 800 + 300 == len(seen) == seen.total()
    tested = {x[2:30, 2:30, 0].tobytes() for data in (made["mnist"], made["mnist_m"]) for x in data.test.x}
    tested |= {x[2:30, 2:30, 0].tobytes() for x in made["mnist_m"].shifted.x}
    assert tested <= {x.tobytes() for x in sources.mnist().test.x}


def test_mnist_m_is_the_difference_of_photograph_and_digit(monkeypatch):
    """On an even ground of 100: the ground where there is no ink, 155 under full ink, no wrapped byte."""
    monkeypatch.setattr(drawing, "photo_patch", lambda *_, **__: np.full((32, 32, 3), 100, np.uint8))
    data = Workshop(seed=1, sizes=Sizes(40, 0, 20)).make("mnist_m")
    digits = sources.mnist().train.take(mnist_share("mnist_m", "train", 40, seed=1))
    expected = np.abs(100 - digits.x.astype(int))
    assert np.array_equal(expected, data.train.x[:, 2:30, 2:30, 2])
    assert np.all(data.train.x[:, :2] == 100)


def test_only_shifted_pictures_lie_over_different_parts_of_the_photographs(monkeypatch):
    """With a photograph that is black above and white in its lower third, white shows up in `shifted` alone."""
    photograph = np.zeros((300, 200, 3), np.uint8)
    photograph[200:] = 255
    monkeypatch.setattr(sources, "photos", lambda: [photograph])
    data = Workshop(seed=1, sizes=Sizes(40, 20, 20)).make("mnist_m")
    frames = {split: set(np.unique(part.x[:, :2]).tolist()) for split, part in data.splits().items()}
    assert {"train": {0}, "validation": {0}, "test": {0}, "shifted": {255}} == frames
