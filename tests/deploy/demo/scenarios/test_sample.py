"""The sample that lies beside the demo: small, whole, and without a picture that is in two places."""

import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from pfl_deploy.datasets.domains import SHIFTED, mnist_share
from pfl_deploy.demo.plan import SAMPLE

SITES = ("mnist", "mnist_m", "optdigits", "synth")
SIZES = {"train": 200, "validation": 100, "test": 250, "shifted": 200}
PARTS = [(site, part) for site in SITES for part in SIZES if part != "shifted" or site in SHIFTED]
TESTED = ("test", "shifted")
THREE_MB = 3_000_000


def load(site: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """One part of one site."""
    with np.load(SAMPLE / site / f"{part}.npz") as arrays:
        return arrays["x"], arrays["y"]


def test_it_is_small() -> None:
    """All files together stay below 3 MB, and there are these four folders and no other."""
    assert set(SITES) == {path.name for path in SAMPLE.iterdir()}
    assert THREE_MB > sum(path.stat().st_size for path in SAMPLE.parent.rglob("*") if path.is_file())
    assert set(PARTS) == {(file.parent.name, file.stem) for file in SAMPLE.rglob("*.npz")}


@pytest.mark.parametrize(("site", "part"), PARTS)
def test_each_part_holds_what_its_origin_says(site: str, part: str) -> None:
    """Colour pictures of 32x32 bytes, every class among them, as many as the command asked for."""
    x, y = load(site, part)
    origin = json.loads((SAMPLE / site / "origin.json").read_text())
    assert SIZES[part] == origin["sizes"][part]
    assert (SIZES[part], 32, 32, 3) == x.shape
    assert np.uint8 == x.dtype
    assert np.int64 == y.dtype
    assert set(range(10)) == set(y.tolist())
    assert 20 < x.std()


def test_no_picture_is_in_two_places() -> None:
    """Neither in two parts of a site nor at two sites."""
    seen = Counter(x.tobytes() for site, part in PARTS for x in load(site, part)[0])
    assert [] == [count for count in seen.values() if count > 1]


def test_no_mnist_digit_is_in_two_places() -> None:
    """The two sites made of MNIST draw from shares that do not meet, test digits from MNIST's own test set."""
    shares = {
        (site, part): set(mnist_share(site, part, SIZES[part], seed=0).tolist())
        for site, part in PARTS
        if site.startswith("mnist")
    }
    pools = [[key for key in shares if (key[1] in TESTED) == tested] for tested in (False, True)]
    for pool in pools:
        for first, second in combinations(pool, 2):
            assert set() == shares[first] & shares[second], f"{first} and {second}"


def test_the_photographs_hide_the_digits_only() -> None:
    """mnist_m's pictures are not those of mnist with another ground: no digit's strokes are the same."""
    digits = {
        x[..., 0].tobytes() for part in ("train", "validation", "test") for x in load("mnist", part)[0] > 127
    }
    bright = {x[..., 0].tobytes() for part in SIZES for x in load("mnist_m", part)[0] > 127}
    assert set() == digits & bright


def test_readme_names_origin_and_licence_of_each_site() -> None:
    """A user who takes the sample along knows under what licence."""
    lines = (SAMPLE.parent / "README.md").read_text().splitlines()
    licences = {
        "mnist": "CC BY-SA 3.0",
        "mnist_m": "CC BY-SA 3.0",
        "optdigits": "CC BY 4.0",
        "synth": "Apache-2.0",
    }
    for site, licence in licences.items():
        row = next(line for line in lines if line.startswith(f"| `{site}` |"))
        assert licence in row
