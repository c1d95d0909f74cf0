"""How channels are scaled and training pictures changed: by preset, by a list, or by what the sites say together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pfl_common.errors import DataError, SettingError
from pfl_common.spec.augmentation import PRESETS, Crop, Flip, Rotate
from pfl_common.spec.run import NOT_SUMMED, Description, Model, Moments
from pfl_server.decisions.channel_scaling import choose_steps, explain
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree

COLOUR = Description((3, 32, 32), ("a", "b"), samples=100, low=0, high=255)
GREY = replace(COLOUR, shape=(1, 32, 32))


def scaling(wish: Wish, **sites: Description) -> list[tuple[float, float]]:
    """(mean, deviation) of each channel."""
    model = agree(sites, wish)
    return list(zip(model.pixel_mean, model.pixel_deviation, strict=True))


def test_named_scalings() -> None:
    """For grey pictures the middle over the colours; none by default."""
    assert [] == scaling(Wish(), a=COLOUR)
    assert [(0.5, 0.5)] * 3 == scaling(Wish(normalise="half"), a=COLOUR)
    assert [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)] == scaling(
        Wish(normalise="imagenet"), a=COLOUR, b=GREY
    )
    assert [(0.449, 0.226)] == scaling(Wish(normalise="imagenet"), a=GREY)


def moments(count: int, *channels: tuple[float, float]) -> Moments:
    """Sums of raw values with these means and mean squares."""
    sums, squares = zip(*((count * mean, count * square) for mean, square in channels), strict=True)
    return Moments(count, sums, squares)


def test_agreed_by_hand() -> None:
    """Two sites, one of them grey, whose channel stands for each colour: means 51 and 102 of 255, one three times."""
    colour = replace(COLOUR, moments=moments(10, (51, 51**2), (0, 0), (255, 255**2)))
    grey = replace(GREY, moments=moments(30, (102, 102**2)))
    found = scaling(Wish(normalise="agreed"), a=colour, b=grey)
    # 0.2 once and 0.4 thrice; 0 once and 0.4 thrice; 1 once and 0.4 thrice.
    expected = [(0.35, 0.0075), (0.3, 0.03), (0.55, 0.0675)]
    assert [pytest.approx((mean, variance**0.5)) for mean, variance in expected] == found


def test_agreed_over_raw_values() -> None:
    """Of 16 bits beside 8 bits: each by its own full scale, the wide ones by the range all sites have together."""
    wide = replace(GREY, values="wide", low=100, high=1100, moments=moments(10, (600, 600**2)))
    found = scaling(Wish(normalise="agreed"), a=wide, b=replace(GREY, moments=moments(10, (255, 255**2))))
    assert [pytest.approx((0.75, 0.25))] == found


def test_sites_that_told_nothing() -> None:
    """They are scaled by the others; if all are such, nothing can be agreed. Pictures of one colour stay finite."""
    told = replace(COLOUR, moments=moments(9, *[(0, 0)] * 3))
    assert [(0.0, 1.0)] * 3 == scaling(
        Wish(normalise="agreed"), a=told, b=replace(COLOUR, moments=NOT_SUMMED)
    )
    with pytest.raises(DataError, match="cannot be agreed"):
        scaling(Wish(normalise="agreed"), a=replace(COLOUR, moments=NOT_SUMMED))


@pytest.mark.parametrize(
    ("changes", "wish", "words"),
    [
        (
            {"kind": "table", "shape": (3,), "values": "numbers"},
            Wish(normalise="half"),
            "--normalise is named",
        ),
        (
            {"kind": "table", "shape": (3,), "values": "numbers"},
            Wish(augment=(Flip(),)),
            "--augment is named",
        ),
        ({"values": "signed", "low": -1}, Wish(normalise="half"), "not 0..1 or 0..255"),
        ({"values": "signed", "low": -1}, Wish(augment="flip"), "not 0..1 or 0..255"),
        ({"values": "wide"}, Wish(normalise="agreed", pixel_range="per-picture"), "per-picture"),
        ({}, Wish(augment=(Crop(padding=33),)), "padding of 33"),
    ],
)
def test_what_does_not_go_together(changes: dict[str, Any], wish: Wish, words: str) -> None:
    """Other data than pictures, pictures without a range, sums without one, a frame wider than the picture."""
    sites = {"a": replace(COLOUR, **changes)}
    with pytest.raises(SettingError, match=words):
        choose_steps(sites, wish, agree(sites, wish))


@pytest.mark.parametrize(
    ("side", "classes", "expected"),
    [
        (227, 7, (Flip(), Rotate(degrees=30))),
        (64, 200, (Flip(), Rotate(degrees=15))),
        (32, 100, (Flip(), Rotate(degrees=15), Crop(padding=4, fill="mean"))),
        (32, 10, ()),
        (64, 10, ()),
    ],
    ids=["PACS", "Tiny-ImageNet", "CIFAR-100", "CIFAR-10", "digits, however large"],
)
def test_the_papers_by_data_set(side: int, classes: int, expected: object) -> None:
    """As section 5 of the specification of methods has them."""
    names = (
        tuple(str(number) for number in range(classes))
        if side == 64
        else tuple(f"c{n}" for n in range(classes))
    )
    model, sites = Model("mlp", (3, side, side), names), {"a": COLOUR}
    assert expected == choose_steps(sites, Wish(augment="papers"), model)
    assert "augment" in explain(sites, Wish(augment="papers"), model)


def test_choices_are_explained() -> None:
    """To operator and sites; where nothing was asked for nothing is said."""
    sites = {"a": COLOUR}
    wish = Wish(normalise="half", augment="medical")
    told = explain(sites, wish, agree(sites, wish))
    assert {"normalise", "augment"} == told.keys()
    assert PRESETS["medical"] == choose_steps(sites, wish, agree(sites, wish))
    assert {} == explain(sites, Wish(), agree(sites, Wish()))
