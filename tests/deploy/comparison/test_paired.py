"""Differences seed by seed, with the interval of Student's t."""

from __future__ import annotations

import pytest

from pfl_deploy.comparison.paired import pair, quantile


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    """95 % of Student's t."""
    assert pytest.approx(value, abs=5e-4) == quantile(freedom)


def test_a_difference_by_hand() -> None:
    """Differences 1, 2 and 3: mean 2, deviation 1, half the interval 4.303 / sqrt(3) = 2.484."""
    found = pair({0: 2.0, 1: 4.0, 2: 6.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert {0: 1.0, 1: 2.0, 2: 3.0} == found.by_seed
    assert pytest.approx((2.0, 2 - 2.484, 2 + 2.484), abs=1e-3) == (found.mean, found.low, found.high)
    assert 3 == found.n


def test_one_seed_has_no_interval() -> None:
    """A single difference says nothing of how much it varies."""
    found = pair({0: 0.5}, {0: 0.25})
    assert (0.25, None, None) == (found.mean, found.low, found.high)
