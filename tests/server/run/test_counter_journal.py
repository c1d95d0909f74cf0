"""What is counted is in the journal soon, and counted on from there."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog

from pfl_server.run.counter_journal import CounterJournal
from pfl_server.store.disk_wait import Room
from pfl_server.store.journal import Journal
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.counters import Meter
from tests.server.support.federation import build_spec, open_run


async def test_a_full_disk_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted is noted every few seconds; that it cannot be is one line, until it can be again."""
    books, meter = open_run(tmp_path, build_spec()), Meter()
    noting = CounterJournal(meter, books.journal)

    async def refuse(reading: Reading) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with structlog.testing.capture_logs() as said:
        for round_ in (1, 2):
            with monkeypatch.context() as broken:
                broken.setattr(Journal, "note", SimpleNamespace(soon=refuse))
                for _ in range(3):
                    meter.moved("up", "train", 7)
                    await noting.note()
            await noting.note()
            assert round_ == [line.get("why") for line in said].count("database or disk is full")
    assert {"now": meter.read()} == books.journal.readings()
    books.journal.close()


async def test_before_a_run_nothing_is_written(tmp_path: Path) -> None:
    """What crosses while sites gather is the run's from its beginning on, and of none of its attempts."""
    books, meter = open_run(tmp_path, build_spec()), Meter()
    noting = CounterJournal(meter, None)
    meter.moved("up", "calls", 5)
    assert 5 == (await noting.tell()).bytes["up/calls"]
    assert {} == books.journal.readings()
    await noting.begin(books.journal, Room(tmp_path))
    found = books.journal.readings()
    assert [5, 5] == [found[name].bytes["up/calls"] for name in ("now", "closed")]
    assert meter.closed == found["closed"]
    meter.moved("up", "calls", 1)
    await noting.note()
    assert 6 == books.journal.readings()["now"].bytes["up/calls"]
    books.journal.close()


def test_a_run_that_is_gone_on_with_counts_on(tmp_path: Path) -> None:
    """From the first look on: a counter never falls back."""
    books, meter = open_run(tmp_path, build_spec()), Meter()
    books.journal.note(Reading({"up/train": 4}))
    CounterJournal(meter, books.journal)
    assert 4 == meter.bytes["up", "train"]
    books.journal.close()
