"""What is seen of a run: only what most sites measure, nobody who is not awaited, and the same after a restart."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pfl_common.evaluation import vector
from pfl_common.spec.run import Kind, Task
from pfl_server.decisions.round import Round
from pfl_server.decisions.sampling import Draw
from pfl_server.run.attempt import Opened
from pfl_server.run.observer import Observer
from pfl_server.run.spool_sweep import SpoolSweep
from pfl_server.run.training import Training
from pfl_server.settings import Durability
from pfl_server.sites.downloads import Downloads
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.store.tallies import open_tally
from pfl_server.telemetry.counters import Spell
from pfl_server.telemetry.event_log import Record
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK

TASK = Task(Kind.TRAIN, 1, 2)


def test_nobody_is_awaited_after_an_abandoned_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site that answered or was lost last, and with that ended it, is not shown as awaited until the next one."""
    books, seen = open_run(tmp_path, build_spec(rounds=1, quorum=1.0)), []
    training = Training(books, ScriptedFleet(books, {("b", 1, 1): "left"}), tick=TICK)
    sweep = SpoolSweep.sweep

    async def look(own: SpoolSweep) -> None:
        seen.append(training.watch.awaited)
        await sweep(own)

    monkeypatch.setattr(SpoolSweep, "sweep", look)
    asyncio.run(training.run())
    books.journal.close()
    assert {"abandoned": 1, "committed": 1} == training.watch.outcomes
    assert [(), ()] == seen


async def test_a_restart_knows_how_far_and_how_good(tmp_path: Path) -> None:
    """Before any round is closed anew: the last committed one, and the newest of what was measured."""
    books = open_run(tmp_path, build_spec())
    journal, draw = books.journal, Draw(("a", "b", "c"), frozenset())
    for number, attempt, counted in ((1, 1, "abc"), (2, 1, ""), (2, 2, "ab"), (3, 1, "")):
        assert attempt == journal.open_attempt(number, "abc", draw)
        if counted:
            journal.commit(number, attempt, counted, {})
        elif number == 2:
            journal.abandon(number, attempt, {}, "too few")
    for kind, correct in ((Kind.TRAIN, 1), (Kind.FINISH, 3)):
        journal.sum_up(
            [replace(TASK, kind=kind, round=2).key], {"pre/test/combined": vector(correct, 4, 0.5)}
        )
        observer = Observer(books, Room(tmp_path), Record())
        await observer.recall()
        watch = observer.watch
        assert (2, 2, 3, 2) == (watch.round, watch.attempt, watch.cohort, watch.counted)
        assert correct / 4 == observer.status().scores["acc_macro"]
    journal.close()


def test_the_log_says_what_the_page_says(tmp_path: Path) -> None:
    """One line a round: the number that the page shows at that moment, of which round and how many sites. The first is
    closed before anything is known of it, and the run's last line has what the last round reached.
    """
    books = open_run(tmp_path, build_spec(rounds=3))
    training = Training(books, ScriptedFleet(books, {}), tick=TICK)
    with capture_logs() as lines:
        asyncio.run(training.run())
    books.journal.close()
    curve = {point.round: point.accuracy for point in training.status().curve}
    closed = [line for line in lines if line["event"] == "round closed"]
    assert [1, 2, 3] == [line["round"] for line in closed]
    assert [None, 1, 2] == [line.get("measured_after_round") for line in closed]
    counted = {point.round: point.measured for point in training.status().curve}
    (over,) = (line for line in lines if line["event"] == "run over")
    assert 3 == over["measured_after_round"]
    for line in (*closed[1:], over):
        assert pytest.approx(curve[line["measured_after_round"]], abs=5e-5) == line["mean_accuracy"]
        assert 0 < counted[line["measured_after_round"]] == line["measured_by"]
    assert not any("combined" in word for line in lines for word in line)
    assert len(set(curve.values())) > 1  # else any round's number would do


@pytest.mark.parametrize("durability", ["power", "process"])
def test_a_round_is_closed_before_the_next_one_is_opened(tmp_path: Path, durability: Durability) -> None:
    """In the log too, where a round's line has its sums: the next one is opened while these are written."""
    books = open_run(tmp_path, build_spec(rounds=3), durability=durability)
    training = Training(books, ScriptedFleet(books), tick=TICK)
    with capture_logs() as lines:
        asyncio.run(training.run())
    books.journal.close()
    told = [
        (line["event"], line["round"]) for line in lines if line["event"] in ("round opened", "round closed")
    ]
    assert [(event, number) for number in (1, 2, 3) for event in ("round opened", "round closed")] == told


async def test_what_is_told_first_of_a_round_is_told_after_the_last_one(tmp_path: Path) -> None:
    """However soon the next one is opened: nothing comes between."""
    books = open_run(tmp_path, build_spec())
    observer = Observer(books, Room(tmp_path), Record())
    for number in (1, 2):
        with capture_logs() as lines:
            observer.opened(begun := open_attempt(books, number), ("a",))
            await observer.closed(begun, ("a",), observer.course(begun), [])
        assert [("round closed", 1)] * (number - 1) + [("round opened", number)] == [
            (line["event"], line["round"]) for line in lines
        ]
    await observer.settle()
    books.journal.close()


def open_attempt(books: Books, number: int) -> Opened:
    """An attempt that begins now."""
    task, clock = replace(TASK, round=number), asyncio.get_running_loop().time
    downloads, tally = Downloads(books, "", books.beginning), open_tally(books, books.first)
    return Opened(
        task,
        books.first,
        downloads,
        Round(("a",), quorum=1),
        tally,
        began=clock(),
        at=0.0,
        sealing=Spell(clock),
        folding=Spell(clock),
    )
