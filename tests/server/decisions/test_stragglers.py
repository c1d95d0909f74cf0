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


def test_a_site_that_is_aside_costs_a_ninth_of_the_time_at_most() -> None:
    """Who is waited for in vain is waited for again when the run has gone on for eight times as long."""
    losses, now, waited = Losses(), 0.0, 0.0
    while now < 10_000:
        tried = losses.tried({"h"}, now)
        held = 30.0 if tried or not losses.aside() else 0.0
        now, waited = now + 1.0 + held, waited + held
        losses.take(COHORT, {"h": "straggler"}, held={"h": held} if held else {}, now=now)
    assert 0.10 < waited / now < 0.12


def test_a_site_that_comes_back_is_waited_for_at_once() -> None:
    """While it is away nobody waits for it; what that takes is nothing, so no time has to pass."""
    losses = Losses()
    for now in range(50):
        losses.take(COHORT, {"h": "lease"}, now=float(now))
        assert not losses.tried({"a", "b", "c"}, now)
    assert frozenset("h") == losses.tried({"a", "b", "c", "h"}, 50.0)
    assert frozenset("h") == losses.doubted()


def test_what_a_site_delivers_makes_up_for_the_wait() -> None:
    """It was waited for long, and not in vain: the next time it is aside the same begins anew."""
    losses = Losses()
    losses.take(COHORT, {"h": "lease"}, held={"h": 100.0}, now=0.0)
    lose(losses, "", "left", "left", "left")
    assert frozenset("h") == losses.tried({"h"}, 1.0)


def test_a_restart_counts_the_same() -> None:
    """From the rows of the journal; an attempt that is still open says nothing."""
    rows = [{"status": "abandoned", "cohort": list(COHORT), "losses": {"h": "left"}}] * 3
    losses = Losses()
    losses.recall([*rows[:2], {"status": "open", "cohort": list(COHORT), "losses": {}}])
    assert not losses.aside()
    losses.recall(rows[:1], rest_until=5.0)
    assert frozenset("h") == losses.aside()
    assert (frozenset(), frozenset("h")) == (losses.tried({"h"}, 4.0), losses.tried({"h"}, 5.0))


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
