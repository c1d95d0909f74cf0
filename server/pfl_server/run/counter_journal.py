"""Keeps the counters in the run's journal: after a restart or a kill they count on and do not fall back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter

import structlog

from pfl_server.store.disk_wait import Room
from pfl_server.store.journal import Journal
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.counters import Meter

log = structlog.get_logger("pfl.run")

NOTE_SECONDS = 2.0
"""A disk that takes longer holds up no scrape."""
NOTED_SECONDS = 5.0
"""At most what was counted in so many seconds is lost with a coordinator that is killed."""


class CounterJournal:
    """Writes a coordinator's counters to the run's journal, as soon as there is a run."""

    def __init__(self, meter: Meter, journal: Journal | None) -> None:
        """With the journal of a run that is gone on with, the meter counts on at once."""
        self._meter, self._journal = meter, journal
        if journal is not None:
            # Before anybody can look: a counter that is seen to begin again at 0 is taken for one that has grown by all
            # that it then has.
            count_on(meter, journal)
        self._noted = self._told = meter.read()
        self._noting: asyncio.Task[Reading] | None = None
        self._failed = ""

    async def begin(self, journal: Journal, room: Room) -> None:
        """Begin with a new run: traffic while its sites gathered belongs to the run, but to none of its attempts."""
        self._journal = journal
        self._meter.closed = gathered = self._meter.read()
        await room.have(journal.note.soon, gathered, closed=True)

    async def tell(self) -> Reading:
        """The counters, once they are written down; while the disk is slow, those told before."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self.note())
        await asyncio.wait({self._noting}, timeout=NOTE_SECONDS)
        if self._noting.done():
            self._told = self._noting.result()
        return self._told

    async def note(self) -> Reading:
        """Write down the counters and give them: after a kill this much is known."""
        reading = self._meter.read()
        if self._journal is not None and reading != self._noted:
            try:
                await self._journal.note.soon(reading)
                self._noted, self._failed = reading, ""
            except sqlite3.Error as error:
                # Nothing that is computed depends on it; a full disk is said where it holds somebody up.
                if str(error) != self._failed:
                    log.warning("what is counted is not written down", why=str(error))
                self._failed = str(error)
        return reading

    async def keep_noting(self) -> None:
        """Note now and then, as long as this program runs."""
        while True:
            await asyncio.sleep(NOTED_SECONDS)
            await self.note()


def count_on(meter: Meter, journal: Journal) -> None:
    """Let a meter count on from the run's noted counters; of a run by an older release only the attempts are known."""
    readings, moved = journal.readings(), Counter[str]()
    for course in journal.course():
        moved.update(course.bytes)
    ended = Reading(moved)
    closed = readings.get("closed", ended)
    meter.go_on(readings.get("now", closed).or_more(closed))
    meter.closed = closed
