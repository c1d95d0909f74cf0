"""What happened, for people: newest first, bounded, and begun again from the journal."""

from __future__ import annotations

from collections.abc import Iterator

from pfl_common.spec.messages import Event
from pfl_server.telemetry.course import Course
from pfl_server.telemetry.event_log import MOST, Events
from pfl_server.telemetry.rejections import LONGEST_WORDS


def test_the_newest_come_first_and_old_ones_go() -> None:
    """However much happens, memory does not grow."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1
        return now

    events = Events(clock)
    for number in range(MOST + 5):
        events.add(f"round {number} opened")
    newest = events.newest()
    assert (MOST, f"round {MOST + 4} opened") == (len(newest), newest[0].words)
    assert sorted(newest, key=lambda event: -event.at) == list(newest)


def test_the_same_again_is_one_event() -> None:
    """What a site repeats does not drive everything else out."""
    events = Events(lambda: 7.0)
    events.add("a joined")
    for _ in range(3):
        events.add("refused (late): a", "warning")
    assert (
        Event(7.0, "warning", "refused (late): a (3 times)"),
        Event(7.0, "info", "a joined"),
    ) == events.newest()


def test_peers_words_are_one_short_readable_line() -> None:
    """They are shown on a terminal and on a page."""
    events = Events(lambda: 0.0)
    events.add("a declined:\x1b[2J\n" + "x" * 1000)
    (event,) = events.newest()
    assert (LONGEST_WORDS, True) == (len(event.words), event.words.isprintable())


def test_long_words_are_cut_before_they_are_cleaned() -> None:
    """Four million characters of a peer cost the event loop no more than a line of them."""
    events, words = Events(lambda: 0.0), Long("x" * 4_000_000)
    events.add(words)
    assert words.walked <= LONGEST_WORDS


class Long(str):
    """A text that knows how much of it was looked at, sign by sign."""

    walked = 0

    def __iter__(self) -> Iterator[str]:
        for sign in super().__iter__():
            self.walked += 1
            yield sign


def test_a_restart_begins_with_what_the_journal_knows() -> None:
    """Each attempt that ended is told when it ended, one under way is not, and each goodbye when it was said."""
    rounds = [
        {"round": 1, "attempt": 1, "status": "abandoned", "reason": "0 of 1", "counted": [], "losses": {}},
        {
            "round": 1,
            "attempt": 2,
            "status": "committed",
            "reason": "",
            "counted": ["a"],
            "losses": {"b": "lease"},
        },
        {"round": 2, "attempt": 1, "status": "committed", "reason": "", "counted": ["a", "b"], "losses": {}},
        {"round": 3, "attempt": 1, "status": "open", "reason": "", "counted": [], "losses": {}},
    ]
    courses = [Course(n, a, at - 1, at, {}, {}) for n, a, at in ((1, 1, 10.0), (1, 2, 20.0), (2, 1, 30.0))]
    events = Events(lambda: 40.0)
    events.add("a joined")
    events.recall(rounds, courses, {"c": 35.0, "b": 25.0})
    assert [
        Event(40.0, "info", "a joined"),
        Event(35.0, "info", "c left"),
        Event(30.0, "info", "round 2 closed: 2 counted"),
        Event(25.0, "info", "b left"),
        Event(20.0, "warning", "round 1 closed: 1 counted; lost: b (lease)"),
        Event(10.0, "warning", "round 1, attempt 1, was abandoned: 0 of 1"),
    ] == list(events.newest())


def test_an_old_goodbye_does_not_drive_out_newer_rounds() -> None:
    """After a restart the newest are kept as they would have been before it."""
    numbers = range(1, MOST + 1)
    rounds = [
        {"round": n, "attempt": 1, "status": "committed", "reason": "", "counted": ["a"], "losses": {}}
        for n in numbers
    ]
    courses = [Course(n, 1, n - 1.0, float(n), {}, {}) for n in numbers]
    events = Events(lambda: 0.0)
    events.recall(rounds, courses, {"b": 0.5})
    assert (MOST, 1.0) == (len(events.newest()), events.newest()[-1].at)
