"""Messages that were not taken: who, why and how often, in few lines whatever comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any  # as structlog has the entries of a log

import pytest
from structlog.testing import capture_logs

from pfl_common.errors import Refused
from pfl_server.telemetry.event_log import MOST, Events, Record
from pfl_server.telemetry.rejections import LONGEST_WORDS, MOST_APART, MOST_SHOWN, Caller, Refusals

STRANGER = Caller("192.0.2.7")
SITE = Caller("192.0.2.8", "hospital_a")


class Hand:
    """A clock that is moved by hand, with what is to be called when it has moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it when so much time has passed."""
        self._due.append((self.now + seconds, call))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        due, self._due = self._due, []
        for at, call in due:
            if at <= self.now:
                call()
            else:
                self._due.append((at, call))

    def refusals(self) -> Refusals:
        """Refusals by this clock."""
        return Refusals(lambda: self.now, self.later)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def log() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as lines:
        yield lines


def test_the_first_is_said_at_once(hand: Hand, log: list[MutableMapping[str, Any]]) -> None:
    """With code, words, the name that was proven and the address; without proof the name is unknown."""
    refusals = hand.refusals()
    refusals.take(Refused("late", "nothing called 000001-1-train is awaited"), SITE)
    hand.now = 1.0
    refusals.take(Refused("wrong_proof", "a wrong proof\n  expected: a right one"), STRANGER)
    assert [
        {
            "event": "refused",
            "log_level": "warning",
            "code": "late",
            "site": "hospital_a",
            "address": "192.0.2.8",
            "words": "nothing called 000001-1-train is awaited",
            "times": 1,
        },
        {
            "event": "refused",
            "log_level": "warning",
            "code": "wrong_proof",
            "site": "unknown",
            "address": "192.0.2.7",
            "words": "a wrong proof; expected: a right one",
            "times": 1,
        },
    ] == log
    assert [
        (1.0, "warning", "refused (wrong_proof), unknown at 192.0.2.7: a wrong proof; expected: a right one"),
        (
            0.0,
            "warning",
            "refused (late), hospital_a at 192.0.2.8: nothing called 000001-1-train is awaited",
        ),
    ] == [(event.at, event.level, event.words) for event in refusals.newest()]


def test_repeats_of_a_minute_are_one_line(hand: Hand, log: list[MutableMapping[str, Any]]) -> None:
    """The log counts what came since its last line, the page all; after a quiet minute it begins anew."""
    refusals = hand.refusals()
    for number in range(1000):
        refusals.take(Refused("wrong_proof", f"try {number}"), STRANGER)
        hand.wait(0.01)
    assert [1] == [line["times"] for line in log]
    hand.wait(60)
    assert [("refused", 1), ("refused again", 999)] == [(line["event"], line["times"]) for line in log]
    assert ("try 999", "192.0.2.7") == (log[-1]["words"], log[-1]["address"])
    refusals.take(Refused("wrong_proof", "one more"), STRANGER)
    hand.wait(60)
    assert [1, 999, 1] == [line["times"] for line in log]
    assert ["refused (wrong_proof), unknown at 192.0.2.7: one more (1001 times)"] == [
        event.words for event in refusals.newest()
    ]
    hand.wait(60)
    hand.wait(60)
    assert 3 == len(log), "nothing has happened"
    refusals.take(Refused("wrong_proof", "once more"), STRANGER)
    assert ("refused", 1) == (log[-1]["event"], log[-1]["times"])


def test_callers_and_codes_are_told_apart(hand: Hand, log: list[MutableMapping[str, Any]]) -> None:
    """A site is one caller wherever it calls from; a stranger is its address."""
    refusals = hand.refusals()
    refusals.take(Refused("late", ""), SITE)
    refusals.take(Refused("late", ""), Caller("192.0.2.9", "hospital_a"))
    refusals.take(Refused("late", ""), Caller("192.0.2.8", "hospital_b"))
    refusals.take(Refused("seal", ""), SITE)
    refusals.take(Refused("seal", ""), Caller("192.0.2.8"))
    assert [
        ("late", "hospital_a"),
        ("late", "hospital_b"),
        ("seal", "hospital_a"),
        ("seal", "unknown"),
    ] == [(line["code"], line["site"]) for line in log]


def test_a_flood_fills_nothing(hand: Hand, log: list[MutableMapping[str, Any]]) -> None:
    """From however many addresses: few lines, few events, all of it counted, and a site is seen beside it."""
    refusals = hand.refusals()
    for number in range(5000):
        refusals.take(Refused("wrong_proof", "no"), Caller(f"2001:db8::{number:x}"))
    refusals.take(Refused("norm", "too large"), SITE)
    hand.wait(60)
    hand.wait(60)
    assert MOST_APART + 3 == len(log)
    assert ("unknown", "several addresses") == (log[MOST_APART]["site"], log[MOST_APART]["address"])
    assert ("hospital_a", "norm") == (log[MOST_APART + 1]["site"], log[MOST_APART + 1]["code"])
    assert 5001 == sum(line["times"] for line in log)
    assert MOST_SHOWN == len(refusals.newest())
    assert not refusals._open, "who is quiet again is forgotten"


def test_many_sites_are_several(hand: Hand, log: list[MutableMapping[str, Any]]) -> None:
    """After a restart every site of a large federation may be refused once."""
    refusals = hand.refusals()
    for number in range(100):
        refusals.take(Refused("not_joined", "join first"), Caller("192.0.2.1", f"site_{number}"))
    hand.wait(60)
    assert (MOST_APART + 2, "several sites", 100 - MOST_APART - 1) == (
        len(log),
        log[-1]["site"],
        log[-1]["times"],
    )


def test_words_of_a_peer_are_one_short_line(hand: Hand, log: list[MutableMapping[str, Any]]) -> None:
    """They go to a log and to a terminal."""
    hand.refusals().take(Refused("header", "a\x1b[2J\n" + "x" * 10_000), STRANGER)
    assert (LONGEST_WORDS, True) == (len(log[0]["words"]), log[0]["words"].isprintable())


async def test_refusals_have_their_own_few_places() -> None:
    """What else happened stays to be seen, and the meter's refusals come among the events by themselves."""
    record = Record(events=Events(lambda: 1.0))
    for number in range(MOST):
        record.events.add(f"round {number} closed")
    for number in range(200):
        record.meter.refuse(Refused("seal", "no"), Caller(f"192.0.2.{number}"))
    words = [event.words for event in record.events.newest()]
    refused = [line for line in words if line.startswith("refused (seal), unknown at ")]
    assert (MOST, MOST_SHOWN) == (len(words) - len(refused), len(refused))
    assert {"seal": 200} == record.meter.refusals
