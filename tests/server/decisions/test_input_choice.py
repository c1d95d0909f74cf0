"""What becomes of raw samples: one size, one range, one standardisation, chosen over all sites and explained."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from pfl_common.errors import Refused, SettingError
from pfl_common.spec.run import ClientId, Description, Model, Moments
from pfl_server.decisions.input_choice import Range, Wish, explain, parse_range
from pfl_server.decisions.model_choice import agree, fits

PICTURES = Description((3, 40, 48), ("cat", "dog"), 5, sizes=((40, 48, 5),), high=255)
WIDE = replace(PICTURES, values="wide", high=4095)
TABLE = Description((3,), ("cat", "dog"), 4, "array", values="numbers")


def tables(*parts: np.ndarray) -> dict[ClientId, Description]:
    """Sites that have summed their samples."""
    return {f"s{n}": with_sums(part) for n, part in enumerate(parts)}


def with_sums(part: np.ndarray) -> Description:
    """A table's description as a site makes it."""
    x = part.astype(np.float64)
    mean = x.mean(0)
    squares = ((x - mean) ** 2).sum(0) + len(x) * mean**2
    moments = Moments(len(x), tuple(x.sum(0).tolist()), tuple(squares.tolist()))
    return replace(TABLE, shape=(x.shape[1],), moments=moments, low=float(x.min()), high=float(x.max()))


def told(sites: Mapping[ClientId, Description], wish: Wish) -> dict[str, str]:
    """What a run says of its choices."""
    model = agree(sites, wish)
    return explain(sites, wish, shape=model.shape, features=len(model.mean))


@pytest.mark.parametrize(
    ("sites", "asked", "range_"),
    [
        ([PICTURES], "auto", Range()),
        ([PICTURES], "0..4095", Range()),
        ([WIDE, replace(WIDE, low=12, high=900)], "auto", Range(0, 4095)),
        ([WIDE, PICTURES], "auto", Range(0, 4095)),
        ([WIDE], "100..2000", Range(100, 2000)),
        ([WIDE], "per-picture", Range(per_picture=True)),
        ([replace(PICTURES, values="unit", high=0.9)], "auto", Range(0, 1)),
        ([replace(PICTURES, values="byte_floats", high=200)], "auto", Range(0, 255)),
        ([replace(PICTURES, values="signed", low=-3)], "auto", Range()),
        ([replace(PICTURES, values="signed", low=-3)], "-3..3", Range(-3, 3)),
    ],
)
def test_the_range_of_raw_values(sites: list[Description], asked: str, range_: Range) -> None:
    """Agreed over the training parts of sites with 16 bits; bytes stay as they are; a named one wins."""
    model = agree({f"s{n}": one for n, one in enumerate(sites)}, Wish(pixel_range=asked))
    assert range_ == Range(model.low, model.high, model.per_picture)


@pytest.mark.parametrize(
    ("sites", "asked", "words"),
    [
        (
            [WIDE],
            "auto",
            "0..4095 becomes black..white, the smallest and the largest value over the training parts of 1",
        ),
        ([WIDE, PICTURES], "auto", "8-bit pictures among them stay as they are"),
        (
            [replace(WIDE, high=65535), WIDE, WIDE],
            "auto",
            "less than a sixteenth of it is used at s1, s2: grey levels",
        ),
        ([replace(WIDE, high=2000), WIDE], "auto", "training parts of 2 sites; --pixel-range LOW..HIGH"),
        ([WIDE], "5..90", "5..90 becomes black..white, as --pixel-range says"),
        ([WIDE], "per-picture", "brightness cannot be compared"),
        ([PICTURES], "5..90", "--pixel-range 5..90 is for other pictures"),
    ],
)
def test_the_range_is_explained(sites: list[Description], asked: str, words: str) -> None:
    """What is black and what white, why, and an option that does nothing is said to."""
    sites_ = {f"s{n}": one for n, one in enumerate(sites)}
    assert words in told(sites_, Wish(pixel_range=asked))["pixel range"]


def test_bytes_need_no_words() -> None:
    """What everybody expects is not explained."""
    assert "pixel range" not in told({"a": PICTURES}, Wish())


@pytest.mark.parametrize(
    "text",
    ["", "0", "4095..0", "5..5", "a..b", "per picture", "nan..1", "0..inf", "1e3..2e3", "0.." + "9" * 400],
)
def test_a_range_that_is_none(text: str) -> None:
    """The words say what one looks like, and the nearest word."""
    with pytest.raises(SettingError, match="the pixel range is"):
        parse_range(text)


def test_means_and_deviations_are_those_of_all_samples_together() -> None:
    """From the sums alone, as if the samples lay in one place; large numbers with small differences too."""
    x = np.random.default_rng(1).normal([0, 5e3, 1e6], [1e-3, 40, 3], (30, 3))
    model = agree(tables(x[:5], x[5:6], x[6:]), Wish())
    np.testing.assert_allclose(model.mean, x.mean(0), rtol=1e-9)
    np.testing.assert_allclose(model.deviation, x.std(0), rtol=1e-3)


def test_a_feature_that_never_changes_is_not_divided_away() -> None:
    """Its deviation is 1, although sums of squares never give exactly 0."""
    numbers = [0.0, *np.random.default_rng(0).uniform(-9999, 9999, 99)]
    x = np.full((999, 100), numbers, np.float32)
    assert (1.0,) * 100 == agree(tables(x[:2], x[2:]), Wish()).deviation


def test_who_came_first_changes_nothing() -> None:
    """Equal to the bit, in whatever order the sites joined."""
    x = np.random.default_rng(2).normal(0, 100, (40, 5))
    sites = tables(x[:3], x[3:17], x[17:])
    models = {agree(dict(order), Wish()) for order in permutations(sites.items())}
    assert 1 == len(models)


def test_standardising_can_be_left_out_by_name() -> None:
    """Then nothing is taken away, and it is said."""
    sites = tables(np.ones((4, 2)), np.zeros((2, 2)))
    model = agree(sites, Wish(standardise="none"))
    assert ((), ()) == (model.mean, model.deviation)
    assert told(sites, Wish(standardise="none"))["standardise"].startswith("none")
    assert "2 features" in told(sites, Wish())["standardise"]


def test_a_site_that_told_no_sums() -> None:
    """Half a statistic is none: said, and nobody's numbers are changed."""
    sites = tables(np.eye(3)) | {"older": replace(TABLE, low=0, high=1)}
    assert ((), ()) == (agree(sites, Wish()).mean, agree(sites, Wish()).deviation)
    assert "not all sites told" in told(sites, Wish())["standardise"]


def test_a_range_that_is_named_replaces_standardising() -> None:
    """Float pictures with a range are brought to 0..1 by it."""
    signed = replace(PICTURES, values="signed", low=-1, high=2, moments=Moments(9, (3.0,), (8.0,)))
    assert () == agree({"a": signed}, Wish(pixel_range="-1..2")).mean
    assert (1 / 3,) == agree({"a": signed}, Wish()).mean


def test_a_late_site_of_other_pixels_is_refused() -> None:
    """The run has no range for them; pictures in bytes go with a run of 16 bits."""
    bytes_, wide = agree({"a": PICTURES}, Wish()), agree({"a": WIDE}, Wish())
    with pytest.raises(Exception, match=r"late has .*16 bits.* 8 bits"):
        fits(WIDE, bytes_, "late")
    fits(PICTURES, wide, "late")


def test_floats_in_a_run_of_the_release_before() -> None:
    """Its specification says nothing of values; what makes the site fit again is said, and does."""
    model = Model("mlp", (1, 16, 16), ("cat", "dog"))
    now = Description((1, 16, 16), ("cat", "dog"), 24, values="unit", high=1.0)
    with pytest.raises(Refused, match=re.escape('say so in data.json: {"kind": "array"}')):
        fits(now, model, "a")
    fits(replace(now, kind="array", values="numbers"), model, "a")
