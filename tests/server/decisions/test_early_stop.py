"""When a run has not become better for long enough: a table of losses."""

from __future__ import annotations

import pytest

from pfl_server.decisions.early_stop import LEAST_GAIN, Stand, judge


@pytest.mark.parametrize(
    ("losses", "stand"),
    [
        ([], None),
        ([0.9], Stand(0.9, 0, 0)),
        ([0.9, 0.8, 0.7], Stand(0.7, 2, 0)),
        ([0.9, 0.8, 0.8, 0.81], Stand(0.8, 1, 2)),
        ([0.9, 0.8, 0.85, 0.7, 0.7], Stand(0.7, 3, 1)),
        ([0.0, 0.0, 0.0], Stand(0.0, 0, 2)),
    ],
)
def test_the_best_and_the_rounds_since(losses: list[float], stand: Stand | None) -> None:
    """Every better loss begins the count anew."""
    assert stand == judge(dict(enumerate(losses)), 9)


def test_a_gain_that_is_none() -> None:
    """Less than a tenth of a percent of the best is not better; and small steps do not add up to one by turns."""
    assert Stand(1.0, 0, 1) == judge({0: 1.0, 1: 1.0 - LEAST_GAIN / 2}, 5)
    assert Stand(1.0 - LEAST_GAIN * 1.5, 2, 0) == judge(
        {0: 1.0, 1: 1.0 - LEAST_GAIN / 2, 2: 1.0 - LEAST_GAIN * 1.5}, 5
    )


def test_rounds_that_were_not_measured_do_not_count() -> None:
    """Patience is a number of measurements."""
    assert Stand(0.5, 3, 1) == judge({3: 0.5, 9: 0.6}, 2)


def test_patience_that_ran_out_does_not_come_back() -> None:
    """A run that has begun to end is not called back by what was measured at its end."""
    assert Stand(0.5, 0, 2) == judge({0: 0.5, 1: 0.5, 2: 0.5, 3: 0.1}, 2)
