"""16-bit pictures in which a few bright values leave the others few grey levels."""

from __future__ import annotations

import re

import numpy as np

from pfl_client.data.value_spread import Spread


def spread_of(*pictures: list[int]) -> Spread:
    """Pictures of one row, called 0, 1, 2."""
    spread = Spread()
    for position, values in enumerate(pictures):
        spread.add(np.array([values], np.uint16), str(position))
    return spread


def test_the_pictures_of_the_ends_are_known() -> None:
    """The first that has the smallest value, and the first that has the largest."""
    spread = spread_of([5, 9], [3, 7], [3, 9])
    assert (3, 9, "1", "0") == (spread.low, spread.high, spread.lowest, spread.highest)


def test_one_bright_value_in_many() -> None:
    """9,999 values of 0 to 99 and one of 60,000: nearly all lie in 100, the range is 600 times that."""
    usual = list(range(100)) * 100
    (words,) = spread_of(usual, [*usual[1:], 60_000]).remarks()
    assert re.search(r"\b0\.\.99\b.*\b0\.\.60000\b", words)
    assert " in 1;" in words
    assert "--pixel-range 0..99" in words


def test_one_dark_value_in_many() -> None:
    """The picture at the other end is named."""
    usual = list(range(60_000, 60_100)) * 100
    (words,) = spread_of([0, *usual[1:]], usual).remarks()
    assert "60000..60099" in words
    assert "such as in 0;" in words


def test_values_that_are_not_that_few_are_no_fault() -> None:
    """One in a hundred is part of what is to be seen."""
    usual = list(range(100)) * 100
    assert [] == spread_of([*usual[100:], *[60_000] * 100]).remarks()


def test_sixteen_times_as_wide_is_not_too_wide() -> None:
    """Nearly all lie in 0 to 100: a range up to 1,600 leaves them 16 grey levels, one up to 1,601 fewer."""
    usual = [*range(101)] * 100
    assert [] == spread_of([*usual, 1600]).remarks()
    assert 1 == len(spread_of([*usual, 1601]).remarks())


def test_nothing_has_no_ends() -> None:
    """A site without such pictures is told nothing."""
    assert ([], 0.0, 0.0) == (Spread().remarks(), Spread().low, Spread().high)
