"""Whom a round need not wait for: follows from the attempts before and from how long sites took."""

from __future__ import annotations

import pytest

from pfl_server.decisions.sampling import Draw
from pfl_server.decisions.stragglers import Losses, Times, leave_out, usual_time

COHORT = ("a", "b", "c", "h")


def lose(losses: Losses, *reasons: str) -> list[list[str]]:
    """Attempts in which site h was lost, each for a reason; "" where it delivered."""
    return [losses.take(COHORT, {"h": reason} if reason else {}) for reason in reasons]


def test_three_losses_set_a_site_aside() -> None:
    """Whatever the reasons; what it delivers makes up for one each, so it cannot lose and deliver in turn for ever."""
    losses = Losses()
    assert [[], [], ["h"], []] == lose(losses, "lease", "left", "disk_full", "lease")
    assert {"h": "lease"} == losses.lost()
    assert frozenset("h") == losses.aside()
    lose(losses, "")
    assert (frozenset(), {}) == (losses.aside(), losses.lost())
    assert [["h"]] == lose(losses, "straggler")


def test_a_reason_that_lasts_is_enough() -> None:
    """Too few samples stay too few: to ask twice more would cost every site two rounds."""
    assert [["h"]] == lose(Losses(), "too_few_samples")


def test_a_drawn_drop_out_is_no_loss() -> None:
    """It did what it was asked."""
    assert [[]] * 5 == lose(losses := Losses(), *["dropped"] * 5)
    assert not losses.aside()


def test_a_site_that_is_aside_is_waited_for_now_and_then() -> None:
    """After 8, 16, 32 losses in a row and each 32: a slow one that comes back could never deliver otherwise."""
    losses, waited = Losses(), []
    for number in range(1, 100):
        lose(losses, "lease")
        if not losses.skipped():
            waited.append(number)
        assert (number in (8, 16, 32, 64, 96)) is (not losses.doubted())
    assert [1, 2, 8, 16, 32, 64, 96] == waited


def test_a_restart_counts_the_same() -> None:
    """From the rows of the journal; an attempt that is still open says nothing."""
    rows = [{"status": "abandoned", "cohort": list(COHORT), "losses": {"h": "left"}}] * 3
    losses = Losses()
    losses.recall([*rows[:2], {"status": "open", "cohort": list(COHORT), "losses": {}}])
    assert not losses.aside()
    losses.recall(rows[:1])
    assert frozenset("h") == losses.aside()


@pytest.mark.parametrize(
    ("cohort", "drops", "aside", "out"),
    [
        ("abch", "", "h", "h"),
        ("abh", "", "h", "h"),
        ("ah", "", "h", ""),
        ("h", "", "h", ""),
        ("abch", "", "bh", ""),
        ("abcdh", "", "dh", "dh"),
        ("abch", "a", "h", "h"),
        ("abch", "ab", "h", ""),
        ("abc", "", "h", ""),
    ],
)
def test_who_is_left_out_of_a_quorum(cohort: str, drops: str, aside: str, out: str) -> None:
    """Fewer than half of the expected, so that two others are left: else the run waits, and does not go on alone."""
    assert frozenset(out) == leave_out(Draw(tuple(cohort), frozenset(drops)), frozenset(aside))


def test_how_long_a_slow_site_may_take() -> None:
    """So many times the median, or its own past, which counts up to ten medians; as many where it has none."""
    times = Times()
    for site, seconds in (("fast", 1.0), ("slow", 40.0), ("slow", 44.0), ("stalls", 9999.0)):
        times.add(site, seconds)
    usual = usual_time([5.0, 10.0, 30.0])
    found = {site: times.allow(site, times=3, usual=usual) for site in ("fast", "slow", "stalls", "new")}
    assert {"fast": 30.0, "slow": 126.0, "stalls": 300.0, "new": 300.0} == found
    assert 30.0 == times.allow("new", times=3, usual=usual, doubted=True), "it was lost the last time"
