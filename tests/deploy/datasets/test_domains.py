"""The digit domains that need no network: the same bytes for the same seed, and nothing on both sides."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pfl_common.errors import DataError, SettingError
from pfl_deploy.datasets import domains, drawing, fonts, sources
from pfl_deploy.datasets.domains import (
    SHIFTED,
    SIX,
    SPLITS,
    Sizes,
    Workshop,
    mnist_share,
    stratified_order,
)

SMALL = Sizes(train=60, validation=20, test=40)

DIGEST = """
import hashlib, sys
from pfl_deploy.datasets.domains import Sizes, Workshop
data = Workshop(seed=11, sizes=Sizes(20, 10, 10)).make("synth")
total = hashlib.sha256()
for name, part in data.splits().items():
    total.update(name.encode() + part.x.tobytes() + part.y.tobytes())
sys.stdout.write(total.hexdigest())
"""


def distinct(part):
    """The pictures of a part as a set of bytes."""
    return {picture.tobytes() for picture in part.x}


def nearest_mean(train, test):
    """Share of test pictures whose nearest class mean is their own class: a very weak reader of digits."""
    means = np.stack([train.x[train.y == digit].mean(axis=0).ravel() for digit in range(10)])
    pixels = test.x.reshape(len(test), -1).astype(float)
    return float(np.mean(np.argmin(((pixels[:, None] - means) ** 2).sum(-1), axis=1) == test.y))


def test_another_process_draws_the_same_pictures():
    """Hash seeds, and with them the order of sets, differ between processes; the pictures do not."""
    digests = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        digests.add(done.stdout)
    here = hashlib.sha256()
    for name, part in Workshop(seed=11, sizes=Sizes(20, 10, 10)).make("synth").splits().items():
        here.update(name.encode() + part.x.tobytes() + part.y.tobytes())
    assert {here.hexdigest()} == digests


@pytest.mark.parametrize("name", ["synth", "street", "hand"])
def test_drawn_domains_have_the_right_form(standing_in, name):
    """Colour pictures of 32x32 bytes, as many as asked for, digits in equal numbers, no picture twice."""
    data = Workshop(seed=3, sizes=SMALL, stock=standing_in).make(name)
    for split, part in data.splits().items():
        assert (SMALL.of(split), 32, 32, 3) == part.x.shape
        assert np.uint8 == part.x.dtype
        assert [SMALL.of(split) // 10] * 10 == np.bincount(part.y, minlength=10).tolist()
    assert list(SPLITS) == list(data.splits())
    assert 60 + 20 + 40 + 40 == len(set.union(*map(distinct, data.splits().values())))
    assert {"train", "shifted"} == set(data.origin["typefaces"])
    assert not set(data.origin["typefaces"]["train"]) & set(data.origin["typefaces"]["shifted"])


@pytest.mark.parametrize("name", ["synth", "street", "hand"])
def test_the_test_is_drawn_like_training_and_the_shifted_test_is_not(standing_in, name, monkeypatch):
    """The same typefaces and the same parts of the photographs for all parts, others for `shifted`."""
    photographs = [
        np.broadcast_to(np.repeat(np.arange(3, dtype=np.uint8), 100)[:, None, None], (300, 200, 3))
    ]
    monkeypatch.setattr(sources, "photos", lambda: photographs)
    brushes = []

    def watched(rng, faces=(), photos=()):
        brushes.append(
            (set(map(Path.resolve, faces)), {int(v) for photo in photos for v in np.unique(photo)})
        )
        return drawing.Brush(rng, faces, photos)

    monkeypatch.setattr(domains, "Brush", watched)
    Workshop(seed=3, sizes=Sizes(10, 10, 10), stock=standing_in).make(name)
    train, validation, test, shifted = brushes
    assert train == validation == test
    assert not train[0] & shifted[0]
    assert not train[1] & shifted[1]
    assert bool(train[1]) == bool(shifted[1]) == (name == "street")


@pytest.mark.parametrize("name", ["synth", "street", "hand"])
def test_a_shifted_test_that_nobody_wants_is_not_made(standing_in, name):
    """Without it a domain has three parts, the same ones."""
    with_it, without = (
        Workshop(seed=3, sizes=Sizes(10, 10, 10, shifted), stock=standing_in).make(name)
        for shifted in (20, 0)
    )
    assert 20 == len(with_it.splits()["shifted"])
    assert ["train", "validation", "test"] == list(without.splits())
    for split, part in without.splits().items():
        assert part.x.tobytes() == with_it.splits()[split].x.tobytes()
    assert {"train"} == set(without.origin["typefaces"])


@pytest.mark.parametrize("name", ["synth", "street", "hand", "optdigits"])
def test_the_order_and_number_of_other_things_made_do_not_matter(standing_in, name):
    """A domain made alone, after others, or with other parts of other sizes, has the same training part."""
    alone = Workshop(seed=3, sizes=SMALL, stock=standing_in).make(name)
    shop = Workshop(seed=3, sizes=Sizes(train=60, validation=0, test=10), stock=standing_in)
    shop.make("synth")
    assert alone.train.x.tobytes() == shop.make(name).train.x.tobytes()
    assert alone.train.y.tobytes() == shop.make(name).train.y.tobytes()


@pytest.mark.parametrize("name", ["synth", "street", "hand"])
def test_another_seed_draws_other_pictures(standing_in, name):
    """Not one in common."""
    first, second = (Workshop(seed=seed, sizes=SMALL, stock=standing_in).make(name) for seed in (0, 1))
    assert not distinct(first.train) & distinct(second.train)


def test_every_part_of_every_domain_has_chance_of_its_own():
    """Four parts of six domains and two seeds: forty-eight different beginnings."""
    shops = [Workshop(seed=seed) for seed in (0, 1)]
    first = {
        shop.generator(name, split).integers(2**60) for shop in shops for name in SIX for split in SPLITS
    }
    assert 48 == len(first)


def test_handwritten_pictures_show_their_label(standing_in):
    """Even class means read more than half of them, against one in ten by chance."""
    data = Workshop(seed=0, sizes=Sizes(600, 0, 200), stock=standing_in).make("hand")
    assert nearest_mean(data.train, data.test) > 0.5


def test_the_middle_of_a_picture_stays_in_the_middle():
    """Turning, slanting and tilting are about the middle: a dot there stays there."""
    rng = np.random.default_rng(0)
    brush = drawing.Brush(rng)
    for _ in range(50):
        dot = np.zeros((96, 96), np.uint8)
        dot[45:51, 45:51] = 255
        warped = drawing._warp(Image.fromarray(dot), brush, turn=0.3, slant=0.3, tilt=0.004)
        rows, columns = np.nonzero(np.asarray(warped) > 100)
        assert (47.5, 47.5) == pytest.approx((rows.mean(), columns.mean()), abs=1.0)


def test_optdigits_is_cut_the_same_way_for_every_seed():
    """A digit tested with one seed is never trained on with another; no digit in two parts."""
    first, second = (Workshop(seed=seed, sizes=Sizes(1000, 200, 500)).make("optdigits") for seed in (0, 1))
    for split, part in first.splits().items():
        assert part.x.tobytes() == second.splits()[split].x.tobytes()
        shares = np.bincount(part.y, minlength=10) / len(part)
        assert shares.tolist() == pytest.approx([0.1] * 10, abs=0.02)
    assert ["train", "validation", "test"] == list(first.splits())
    parts = [distinct(part) for part in first.splits().values()]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_optdigits_says_when_there_are_not_enough():
    """1,797 in all."""
    with pytest.raises(SettingError, match=r"(?s)1798 pictures asked.*at most 1797"):
        Workshop(sizes=Sizes(1098, 200, 500)).make("optdigits")


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=200))
@settings(max_examples=40, deadline=None)
def test_every_beginning_of_a_stratified_order_has_each_class_in_its_share(labels):
    """Within one example of the exact share, for every class and every length; and nothing is lost."""
    labels = np.array(labels)
    order = stratified_order(labels)
    assert list(range(len(labels))) == sorted(order.tolist())
    for label in np.unique(labels):
        seen = np.cumsum(labels[order] == label)
        share = np.mean(labels == label) * np.arange(1, len(labels) + 1)
        assert np.abs(seen - share).max() <= len(np.unique(labels)) / 2 + 0.5


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_no_mnist_digit_is_in_two_places(seed):
    """All parts of both domains at their largest: together they are MNIST, each digit once."""
    taken = {
        (domain, split): set(mnist_share(domain, split, room, seed=seed).tolist())
        for domain, tested in (("mnist", {"test": 5_000}), ("mnist_m", {"test": 2_500, "shifted": 2_500}))
        for split, room in ({"train": 25_000, "validation": 5_000} | tested).items()
    }
    from_train = [indices for (_, split), indices in taken.items() if split in ("train", "validation")]
    from_test = [indices for (_, split), indices in taken.items() if split in ("test", "shifted")]
    assert set(range(60_000)) == set.union(*from_train)
    assert 60_000 == sum(map(len, from_train))
    assert set(range(10_000)) == set.union(*from_test)
    assert 10_000 == sum(map(len, from_test))


def test_more_mnist_digits_than_there_are_is_an_error():
    """Instead of silently fewer."""
    with pytest.raises(SettingError, match=r"(?s)5001 test pictures.*at most 5000"):
        mnist_share("mnist", "test", 5_001, seed=0)
    with pytest.raises(SettingError, match=r"(?s)2501 shifted pictures.*at most 2500"):
        mnist_share("mnist_m", "shifted", 2_501, seed=0)


def test_an_unknown_domain_names_the_nearest(tmp_path):
    """Before anything is written."""
    with pytest.raises(SettingError, match="did you mean 'street'"):
        Workshop(seed=0, sizes=SMALL).write(tmp_path, names=["synth", "streets"])
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, 0), (1, 1, 1, -1)])
def test_sizes_that_make_no_sense_are_errors(sizes):
    """A site needs something to train on and something to test on."""
    with pytest.raises(SettingError, match="at least 1"):
        Sizes(*sizes)


def test_typefaces_that_lack_are_told_for_all_domains_at_once(tmp_path):
    """Before anything is drawn, in one command that can be pasted."""
    bare = Workshop(sizes=Sizes(4, 0, 4), stock=dataclasses.replace(sources.Stock(), fonts=(tmp_path,)))
    with pytest.raises(DataError) as error:
        bare.write(tmp_path / "digits", names=("synth", "street", "hand"))
    for cast in (fonts.STREET, fonts.HAND):
        assert all(family.package in str(error.value) for family in (*cast.train, *cast.shifted))
    assert not (tmp_path / "digits").exists()


def test_there_are_six():
    """The names that documents and commands use."""
    assert ("mnist", "mnist_m", "optdigits", "synth", "street", "hand") == SIX
    assert set(SIX) - {"mnist", "optdigits"} == set(SHIFTED)
