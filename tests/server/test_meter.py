"""What was moved and spent: counted once, divided into laps, and times that overlap are one time."""

from __future__ import annotations

from pfl_common.numbers import Summed
from pfl_server.meter import Laps, Meter, Spell


def test_each_lap_has_what_came_since_the_last() -> None:
    """Nothing is lost between two laps and nothing is in both."""
    meter = Meter()
    meter.moved("down", "init", 5)
    laps = Laps(meter)
    meter.moved("down", "train", 10)
    meter.moved("up", "calls", 1)
    meter.took("fold", 0.5)
    first = laps.next()
    meter.moved("down", "train", 3)
    meter.took("fold", 0.25)
    meter.took("commit", 1.0)
    second = laps.next()
    assert ({"fold": 0.5}, {"down/train": 10, "up/calls": 1}) == (first.seconds, first.bytes)
    assert ({"fold": 0.25, "commit": 1.0}, {"down/train": 3}) == (second.seconds, second.bytes)
    assert ({}, {}) == (laps.next().seconds, laps.next().bytes)
    assert Summed(2, 0.75) == meter.seconds["fold"]


def test_what_happens_at_the_same_time_is_one_spell() -> None:
    """Two waits of three seconds that share one second are five seconds."""
    now = 0.0
    spell = Spell(lambda: now)
    with spell.going_on():
        now = 2.0
        other = spell.going_on()
        other.__enter__()
        now = 3.0
    assert 0.0 == spell.seconds
    now = 5.0
    other.__exit__(None, None, None)
    assert 5.0 == spell.seconds


def test_a_clock_that_goes_back_adds_nothing() -> None:
    """A phase never takes less than no time."""
    meter = Meter()
    meter.took("verify", -1.0)
    assert Summed(1, 0.0) == meter.seconds["verify"]
