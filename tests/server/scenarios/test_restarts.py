"""What a coordinator tells of a run is the same in its next life: nothing is lost, made up or counted twice."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from time import time

import pytest

from pfl_common.spec.run import Task
from pfl_server.run import attempt_play, round_retries
from pfl_server.run.attempt import OUTCOMES
from pfl_server.run.counter_journal import count_on
from pfl_server.run.training import Training
from pfl_server.store.journal import Journal
from pfl_server.store.run_store import Books
from pfl_server.telemetry.counters import Meter
from pfl_server.telemetry.course import Course
from pfl_server.telemetry.event_log import Record
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, Script

ASKED = 100
"""Bytes that cross whenever a site is asked."""
ROUNDS = 3
OF_NO_ROUND = ASKED * 3
"""Every site is asked once more at the end."""


class Life:
    """One life of a coordinator, on the folder of a run."""

    def __init__(self, folder: Path, script: Script | None = None) -> None:
        self.books: Books = open_run(folder, build_spec(rounds=ROUNDS))
        self.record = Record()
        count_on(self.record.meter, self.books.journal)
        self.fleet = ScriptedFleet(self.books, script)
        self.fleet.on_ask = self._move
        self.training = Training(self.books, self.fleet, tick=TICK, record=self.record)
        self.watch = self.training.watch
        self._asked, self._last, self._all_asked = Counter[int](), 0, asyncio.Event()

    def _move(self, site: str, task: Task) -> None:
        self.record.meter.moved("down", "train", ASKED)
        self.record.meter.took("download", 0.5)
        self._asked[task.round] += 1
        if (self._asked[task.round], task.round) == (len(self.fleet.sites), self._last):
            self._all_asked.set()

    async def play(self) -> None:
        """To the end of the run, and stopped in good order."""
        await self.training.run()
        self.books.journal.note(self.record.meter.read())
        self.books.journal.close()

    async def play_until_round(self, number: int) -> None:
        """Killed when all sites were asked in a round, and that was noted."""
        self._last = number
        running = asyncio.create_task(self.training.run())
        await asyncio.wait_for(self._all_asked.wait(), 20)
        self.books.journal.note(self.record.meter.read())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        self.books.journal.close()

    @property
    def curve(self) -> list[tuple[int, int]]:
        """By round what crossed in it, as people are told."""
        return [(point.round, point.bytes_down) for point in self.training.status().curve]


def read_courses(folder: Path) -> list[Course]:
    """What the journal has of each attempt that ended."""
    journal = Journal(folder / "journal.sqlite", durability="process")
    try:
        return journal.course()
    finally:
        journal.close()


SILENT: Script = {("c", 2, 1): "silent"}
TROUBLED: Script = {("a", 1, 1): "left", ("b", 1, 1): "left", ("c", 2, 1): "declined: disk"}


def told(life: Life) -> tuple[object, ...]:
    """All that is counted of a run."""
    watch = life.watch
    return life.record.meter.read(), dict(watch.outcomes), watch.seconds, dict(watch.losses), life.curve


async def test_a_finished_run_served_again_tells_the_same(tmp_path: Path) -> None:
    """All counters stand where they stood; what happened before is no news."""
    first = Life(tmp_path, TROUBLED)
    await first.play()
    assert {"committed": 3, "abandoned": 1} == dict(first.watch.outcomes)
    assert {("left", "called"): 2, ("declined", "called"): 1} == dict(first.watch.losses)
    second = Life(tmp_path)
    second.fleet.on_ask = lambda site, task: None
    await second.play()
    assert told(first) == told(second)
    assert second.watch.recalled
    events = [event.words for event in second.record.events.newest()]
    assert any("finished" in words and "round 3" in words for words in events)
    assert not any(words.startswith("run ") for words in events)
    assert second.watch.status == "finished"


async def test_an_attempt_that_goes_on_after_a_kill(tmp_path: Path) -> None:
    """What crossed in it before is in it, once; it lasted from its first opening to its end; its event too."""
    first = Life(tmp_path, SILENT)
    await first.play_until_round(2)
    opened = first.training.status().opened
    assert opened
    second = Life(tmp_path)
    assert 6 * ASKED == second.record.meter.bytes["down", "train"]
    await second.play()
    # Both lives asked all sites in round 2.
    assert [(1, 300), (2, 600), (3, 300)] == second.curve
    assert 1200 + OF_NO_ROUND == second.record.meter.bytes["down", "train"]
    course = {course.round: course for course in read_courses(tmp_path)}
    assert opened == course[2].opened
    assert 6 * 0.5 == course[2].seconds["download"]
    assert {outcome: second.watch.outcomes[outcome] for outcome in OUTCOMES} == {
        "committed": 3,
        "abandoned": 0,
    }
    assert 3 == second.watch.seconds["committed"].count
    whole = sum(course.ended - course.opened for course in course.values())
    assert pytest.approx(whole, abs=1e-6) == second.watch.seconds["committed"].total
    (event,) = (e for e in second.record.events.newest() if e.words.startswith("round 2 opened"))
    assert opened == event.at


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set this machine's clock forward, as its rounds read it."""
    for module in (attempt_play, round_retries):
        monkeypatch.setattr(module, "time", lambda: time() + seconds)


async def test_the_time_without_a_coordinator_is_time_of_the_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites waited: an operator who looks at how long rounds take must see it."""
    first = Life(tmp_path, SILENT)
    await first.play_until_round(2)
    set_clock(monkeypatch, 60)
    second = Life(tmp_path)
    await second.play()
    seconds = {point.round: point.seconds for point in second.training.status().curve}
    assert 60 <= seconds[2] < 90
    assert seconds[3] < 30


async def test_a_clock_that_was_set_back_makes_no_round_last_less_than_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is then as if it had been opened now."""
    first = Life(tmp_path, SILENT)
    await first.play_until_round(2)
    set_clock(monkeypatch, -3600)
    second = Life(tmp_path)
    await second.play()
    assert all(0 <= point.seconds < 30 for point in second.training.status().curve)


async def test_killed_once_in_every_round(tmp_path: Path) -> None:
    """However often: nothing is counted twice, and rounds that were not disturbed have their own."""
    for number in (1, 2, 3):
        await Life(tmp_path, {("c", number, 1): "silent"}).play_until_round(number)
    last = Life(tmp_path)
    await last.play()
    assert [(1, 600), (2, 600), (3, 600)] == last.curve
    assert 1800 + OF_NO_ROUND == last.record.meter.bytes["down", "train"]


async def test_a_run_of_an_older_release(tmp_path: Path) -> None:
    """Bytes and rounds go on from its attempts; how often a phase was gone through it did not write down."""
    first = Life(tmp_path, SILENT)
    await first.play_until_round(2)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        for table in ("reading", "loss", "opening"):
            db.execute(f"drop table {table}")
        # A journal of that time carries no version.
        db.execute("pragma user_version = 0")
        db.commit()
    second = Life(tmp_path)
    assert (3 * ASKED, Meter().seconds) == (
        second.record.meter.bytes["down", "train"],
        second.record.meter.seconds,
    )
    await second.play_until_round(3)
    assert 2 == second.watch.outcomes["committed"]
    third = Life(tmp_path)
    await third.play()
    assert [(1, 300), (2, 300), (3, 600)] == third.curve
    assert [1.5, 1.5, 3.0] == [course.seconds["download"] for course in read_courses(tmp_path)]
