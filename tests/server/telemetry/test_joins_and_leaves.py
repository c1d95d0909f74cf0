"""A site that comes and goes all the time is one line, and others stay in sight."""

from __future__ import annotations

from pfl_server.telemetry.event_log import Events
from pfl_server.telemetry.joins_and_leaves import QUIET_SECONDS


class Clock:
    """Stands still until a test moves it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_is_one_line() -> None:
    """The first four are told by themselves, then one line says how often; what else happened is still there."""
    events = Events(Clock())
    events.add("round 1 opened: 3 sites asked")
    listed = [events.came("h", how) for _ in range(500) for how in ("joined", "left")]
    assert [True] * 4 + [False] * 996 == listed
    words = [event.words for event in events.newest()]
    assert "h joined 500 times and left 500 times" in words
    assert "round 1 opened: 3 sites asked" in words
    assert 6 == len(words)


def test_a_site_that_was_quiet_is_told_of_again() -> None:
    """A restart a day is no flood."""
    events, clock = Events(Clock()), Clock()
    events = Events(clock)
    for _ in range(10):
        assert events.came("a", "left")
        clock.now += QUIET_SECONDS + 1
    assert not [event for event in events.newest() if "times and left" in event.words]


def test_several_restless_sites() -> None:
    """A few are shown, the newest first."""
    clock = Clock()
    events = Events(clock)
    for site in "abcdef":
        for _ in range(9):
            events.came(site, "came back")
        clock.now += 1
    shown = [event.words for event in events.newest() if "joined 9 times" in event.words]
    assert [f"{site} joined 9 times and left 0 times" for site in "fed"] == shown
