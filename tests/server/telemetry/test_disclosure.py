"""Means over few sites are not told."""

from __future__ import annotations

import pytest

from pfl_common.evaluation import summary, tell_too_few, vector
from pfl_common.spec.messages import Point
from pfl_server.telemetry.disclosure import Disclosure

POINT = Point(
    3,
    9.0,
    1.0,
    6,
    5,
    1,
    accuracy=0.5,
    spread=0.1,
    worst_decile=0.4,
    measured=5,
    diagnostics={"overlap": 0.5},
)


@pytest.mark.parametrize(("fewest", "shown", "told"), [(5, True, True), (6, False, False), (1, True, True)])
def test_a_round_over_too_few_sites_has_no_quality(fewest: int, shown: bool, told: bool) -> None:
    """The number of sites that measured stays, so that people see why."""
    seen = Disclosure(fewest).limit(POINT)
    assert ((0.5, 0.1, 0.4) if shown else (None, None, None)) == (
        seen.accuracy,
        seen.spread,
        seen.worst_decile,
    )
    assert ({"overlap": 0.5} if told else {}) == seen.diagnostics
    assert (5, 5) == (seen.measured, seen.counted)


def test_of_each_summary_its_own_sites_count() -> None:
    """A validation part that few have is not told because the test is."""
    four, five = (summary([count * value for value in vector(1, 2, 0.5)]) for count in (4, 5))
    scores = {"validation/combined": four, "test/combined": five}
    assert {"test/combined": five} == Disclosure().limit_scores(scores)


def test_why_nothing_is_shown() -> None:
    """In the words that page, terminal and log have in common."""
    assert "3 sites: the mean over fewer than 5 is not shown" == tell_too_few(3, 5)
    assert "1 site: the mean over fewer than 5 is not shown" == tell_too_few(1, 5)
    assert "" == tell_too_few(5, 5)
