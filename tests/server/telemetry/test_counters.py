"""What was moved and spent: counted once, divided into laps, and times that overlap are one time."""

from __future__ import annotations

from pfl_common.metric import Summed
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.counters import Meter, Spell


def count() -> tuple[Meter, Reading]:
    """A meter that has counted a little of each, and what it showed on the way."""
    meter = Meter()
    meter.moved("down", "init", 5)
    meter.moved("down", "train", 10)
    meter.took("fold", 0.5)
    meter.refusals["size"] += 2
    before = meter.read()
    meter.moved("down", "train", 3)
    meter.moved("up", "calls", 1)
    meter.took("fold", 0.25)
    meter.took("commit", 1.0)
    return meter, before


def test_a_lap_is_what_came_between_two_readings() -> None:
    """Nothing is lost between two laps and nothing is in both."""
    meter, before = count()
    first, second = before.since(Reading()), meter.read().since(before)
    assert ({"fold": 0.5}, {"down/init": 5, "down/train": 10}) == (first.seconds, first.bytes)
    assert ({"fold": 0.25, "commit": 1.0}, {"down/train": 3, "up/calls": 1}) == (second.seconds, second.bytes)
    rest = meter.read().since(meter.read())
    assert ({}, {}) == (rest.seconds, rest.bytes)
    assert Summed(2, 0.75) == meter.seconds["fold"]


def test_a_meter_counts_on_from_a_reading() -> None:
    """What was counted before is added to what has been counted meanwhile; both are the same once kept and read."""
    meter, before = count()
    kept = Reading.from_json(before.to_json())
    assert before == kept
    meter.go_on(kept)
    assert (23, 10, 1) == tuple(
        meter.bytes[place] for place in (("down", "train"), ("down", "init"), ("up", "calls"))
    )
    assert (Summed(3, 1.25), Summed(1, 1.0)) == (meter.seconds["fold"], meter.seconds["commit"])
    assert {"size": 4} == meter.refusals


def test_what_another_release_counted_too_is_left_out() -> None:
    """Only what is declared is told: an older release that serves a newer one's run shows its own names."""
    meter = Meter()
    meter.go_on(Reading({"down/other": 3, "up/train": 2}, {"dream": (1, 2.0)}))
    assert Meter().bytes.keys() == meter.bytes.keys()
    assert (2, Meter().seconds) == (meter.bytes["up", "train"], meter.seconds)


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
