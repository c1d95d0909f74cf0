"""What the journal promises survives its process, and each promise is made once."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pfl_common.metric import Summed
from pfl_common.spec.messages import Receipt
from pfl_server.decisions.sampling import Draw
from pfl_server.run.counter_journal import count_on
from pfl_server.store.journal import Journal
from pfl_server.store.journal_thread import Page
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.counters import Meter
from pfl_server.telemetry.course import Course

DRAW = Draw(("a", "b"), frozenset({"b"}))
OTHER = Draw(("c",), frozenset())


def reopened(journal: Journal, file: Path) -> Journal:
    journal.close()
    return Journal(file)


def look(journal: Journal, statement: str) -> list[tuple[object, ...]]:
    """What lies in the file itself."""
    return journal.scribe.ask(lambda page: page.rows(statement)).result()


def receipt(site: str = "a", digest: str = "d1") -> Receipt:
    return Receipt("run-1", "000001-1-train", site, digest)


@pytest.mark.parametrize(("durability", "level"), [("power", 2), ("process", 0)])
def test_durability_is_asked_for(tmp_path: Path, durability: str, level: int) -> None:
    """A commit is on disk when it returns, written ahead and with full synchronisation, if power may fail."""
    journal = Journal(tmp_path / durability, durability=durability)
    journal.begin("run-1", "{}")
    pragmas = [look(journal, f"pragma {word}") for word in ("journal_mode", "synchronous")]
    journal.close()
    assert [[("wal",)], [(level,)]] == pragmas


def test_full_durability_is_the_default(journal: Journal) -> None:
    """Who asks for nothing loses nothing."""
    assert ("power", [(2,)]) == (journal.durability, look(journal, "pragma synchronous"))


def test_an_open_attempt_is_found_again(journal: Journal, file: Path) -> None:
    """A restarted coordinator goes on with the attempt it had open, with the draw of that time."""
    assert 1 == journal.open_attempt(1, "cab", DRAW)
    again = reopened(journal, file)
    assert 1 == again.open_attempt(1, "c", OTHER)
    found = again.attempt(1, 1)
    assert (DRAW, "open") == (found.draw, found.status)
    assert [["a", "b", "c"]] == [row["candidates"] for row in again.rounds()]
    assert found == again.attempt(1), "the newest"
    again.close()


def test_an_abandoned_attempt_is_followed_by_another(journal: Journal) -> None:
    """The number rises, the reason stays in the book, and the new draw counts."""
    journal.open_attempt(1, "ab", DRAW)
    journal.abandon(1, 1, {"a": "lease"}, "0 of 1 needed updates")
    assert 2 == journal.open_attempt(1, "c", OTHER)
    journal.commit(1, 2, ["c"], {})
    assert {1: 2} == journal.committed()
    assert ("c",) == journal.counted(1, 2)
    first, second = journal.rounds()
    assert ("abandoned", {"a": "lease"}, [], "0 of 1 needed updates") == (
        first["status"],
        first["losses"],
        first["counted"],
        first["reason"],
    )
    assert ("committed", ["c"], ["c"], []) == (
        second["status"],
        second["counted"],
        second["candidates"],
        second["drops"],
    )


def test_a_receipt_is_given_once(journal: Journal, file: Path) -> None:
    """One per (round, attempt, site): another is an error of ours, not a second vote."""
    journal.receive(receipt(), 1, 1, "000001-1-a")
    with pytest.raises(sqlite3.IntegrityError):
        journal.receive(receipt(digest="d2"), 1, 1, "000001-1-a")
    journal.receive(receipt(), 1, 2, "000001-2-a")
    again = reopened(journal, file)
    assert {"a": ("d1", "000001-1-a")} == again.receipts(1, 1)
    assert {} == again.receipts(2, 1)
    again.close()


def test_a_torn_update_loses_its_receipt(journal: Journal) -> None:
    """Only that one; the site can be asked again and get another."""
    journal.receive(receipt("a"), 1, 1, "x")
    journal.receive(receipt("b"), 1, 1, "y")
    journal.forget("a", 1, 1)
    assert {"b": ("d1", "y")} == journal.receipts(1, 1)
    journal.receive(receipt("a", "d2"), 1, 1, "x")


def test_reports_are_summed_once(journal: Journal) -> None:
    """A report told twice counts once; when the sum is kept the single ones are gone."""
    journal.report("train", "b", {"pre/test/combined": [2.0]})
    journal.report("train", "a", {"pre/test/combined": [1.0]})
    journal.report("train", "b", {"pre/test/combined": [3.0]})
    journal.report("evaluate", "c", {"pre/test/combined": [4.0]})
    assert [1.0, 3.0] == [r["pre/test/combined"][0] for r in journal.reports("train")]
    journal.sum_up(["train", "evaluate"], {"pre/test/combined": [8.0]})
    assert [[], []] == [journal.reports(key) for key in ("train", "evaluate")]
    assert {"train": {"pre/test/combined": [8.0]}} == journal.scores()
    assert [True, False] == [journal.is_summed(key) for key in ("train", "evaluate")]


def test_the_life_of_a_run(journal: Journal, file: Path) -> None:
    """Gathering, running, an end with its words; the specification is there from the beginning on."""
    assert (("gathering", ""), None) == (journal.status(), journal.spec())
    journal.begin("run-1", "{}")
    assert (("running", ""), "{}") == (journal.status(), journal.spec())
    journal.end("failed", "disk full")
    again = reopened(journal, file)
    assert ("failed", "disk full") == again.status()
    again.close()


def test_registering_again_renews_the_description(journal: Journal) -> None:
    """Sites come by name; who was there first is not made late by coming again."""
    journal.register("b", "one", late=False)
    journal.register("a", "two", late=True)
    journal.register("b", "three", late=True)
    assert [("a", "two"), ("b", "three")] == list(journal.sites().items())
    assert [("a", 1), ("b", 0)] == look(journal, "select name, late from site order by name")


def test_a_receipt_keeps_its_signature(journal: Journal, file: Path) -> None:
    """The very receipt that was given is given again: by site and attempt, or there is none."""
    journal.receive(receipt(), 1, 1, "000001-1-a", signature="5e")
    journal.receive(receipt("b"), 1, 1, "000001-1-b")
    again = reopened(journal, file)
    assert ("d1", "000001-1-a", "5e") == again.receipt("a", 1, 1)
    assert ("d1", "000001-1-b", "") == again.receipt("b", 1, 1)
    assert [None, None] == [again.receipt("a", 1, 2), again.receipt("c", 1, 1)]
    again.close()


def test_it_is_known_what_a_site_began_from(journal: Journal, file: Path) -> None:
    """With each task stands the round the site went on from, as it was given last; a sum does not wipe it out."""
    journal.hand_out("000001-1-train", "a", 2)
    journal.hand_out("000001-1-train", "a", 3)
    journal.hand_out("000001-1-evaluate", "b", 2)
    journal.sum_up(["000001-1-train", "000001-1-evaluate"], {})
    again = reopened(journal, file)
    assert {"000001-1-train": {"a": 3}, "000001-1-evaluate": {"b": 2}} == again.handed()
    again.close()


def test_committed_rounds_are_in_memory(journal: Journal, file: Path) -> None:
    """Asking for them costs no look into the file, and a restart knows them all."""
    for number in (1, 2):
        journal.open_attempt(number, "ab", DRAW)
        journal.commit(number, 1, ["a"], {})
    journal.open_attempt(3, "ab", DRAW)
    journal.abandon(3, 1, {}, "too few")
    journal.close()
    assert {1: 1, 2: 1} == journal.committed()
    again = Journal(file)
    again.close()
    assert {1: 1, 2: 1} == again.committed()


async def test_a_round_is_committed_when_it_is_on_disk(journal: Journal) -> None:
    """A commit whose transaction the disk did not take is not remembered; asked again, it is."""
    go_on = threading.Event()

    def fill(page: Page) -> None:
        page.write("rollback")
        raise sqlite3.OperationalError("database or disk is full")

    await journal.open_attempt.soon(1, "ab", DRAW)
    journal.scribe.ask(lambda page: go_on.wait(20))
    asked = [journal.commit.soon(1, 1, ["a"], {}), asyncio.wrap_future(journal.scribe.ask(fill))]
    go_on.set()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert ["database or disk is full"] * 2 == [str(outcome) for outcome in outcomes]
    assert {} == journal.committed()
    await journal.commit.soon(1, 1, ["a"], {})
    assert {1: 1} == journal.committed()


async def test_the_awaited_form(journal: Journal) -> None:
    """In the event loop the same methods are awaited: their answers and their errors are the same."""
    assert 1 == await journal.open_attempt.soon(1, "ab", DRAW)
    await journal.receive.soon(receipt(), 1, 1, "x", signature="5e")
    with pytest.raises(sqlite3.IntegrityError):
        await journal.receive.soon(receipt(), 1, 1, "x")
    assert ("d1", "x", "5e") == await journal.receipt.soon("a", 1, 1)
    await journal.commit.soon(1, 1, ["a"], {"b": "lease"})
    assert {1: 1} == journal.committed()


async def test_what_is_asked_at_one_moment(journal: Journal) -> None:
    """Receipts and reports of many sites come in at once; none is lost, and one that is refused harms none."""
    sites = [f"s{number:02d}" for number in range(30)]
    asked = [journal.receive.soon(receipt(site), 1, 1, site) for site in [*sites, "s07"]]
    asked += [journal.report.soon("000001-1-train", site, {"x": [1.0]}) for site in sites]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [30] == [n for n, outcome in enumerate(outcomes) if outcome is not None]
    assert isinstance(outcomes[30], sqlite3.IntegrityError)
    assert sites == list(journal.receipts(1, 1))
    assert 30 == len(journal.reports("000001-1-train"))


def test_how_each_attempt_went_survives_a_restart(journal: Journal, file: Path) -> None:
    """It is written with the end of the attempt; an attempt that was ended without it has none."""
    first = Course(1, 1, 10.0, 11.5, {"fold": 0.5}, {"down/train": 7})
    moved = {"up/train": 3, "up/calls": 1}
    second = Course(
        1,
        2,
        12.0,
        13.5,
        {"fold": 0.25, "commit": 1.0},
        moved,
        {"circle/mean": 1.5, "classes": 3.0},
        {"lease/working": 2},
    )
    journal.open_attempt(1, ["a"], OTHER)
    journal.abandon(1, 1, {"a": "lease"}, "0 of 1", course=first)
    journal.open_attempt(1, ["a"], OTHER)
    journal.commit(1, 2, ["a"], {}, course=second)
    assert [first, second] == reopened(journal, file).course()


def test_a_journal_of_an_older_release_gets_the_table(file: Path) -> None:
    """Its rounds are known, how they went is not; what follows is written down."""
    journal = Journal(file)
    journal.open_attempt(1, ["a"], OTHER)
    journal.commit(1, 1, ["a"], {})
    journal.close()
    with closing(sqlite3.connect(file)) as db:
        for table in ("course", "diagnosis", "loss", "opening", "reading"):
            db.execute(f"drop table {table}")
        db.execute("pragma user_version = 0")
        db.commit()
    journal = Journal(file)
    assert ([], {1: 1}) == (journal.course(), journal.committed())
    assert ({}, None) == (journal.readings(), journal.attempt(1, 1).opened)
    journal.open_attempt(2, ["a"], OTHER)
    journal.commit(2, 1, ["a"], {}, course=Course(2, 1, 1.0, 2.0, {}, {}))
    assert [2] == [course.round for course in journal.course()]
    journal.close()


def test_an_attempt_keeps_its_first_opening(journal: Journal, file: Path) -> None:
    """A coordinator that was restarted goes on with it and does not open it; the next attempt has its own time."""
    assert 1 == journal.open_attempt(1, ["a"], OTHER, at=10.0)
    journal = reopened(journal, file)
    assert 1 == journal.open_attempt(1, ["a"], OTHER, at=70.0)
    assert 10.0 == journal.attempt(1, 1).opened
    journal.abandon(1, 1, {}, "0 of 1")
    assert 2 == journal.open_attempt(1, ["a"], OTHER, at=80.0)
    assert (10.0, 80.0) == (journal.attempt(1, 1).opened, journal.attempt(1, 2).opened)


def test_what_was_counted_is_kept_apart_from_what_an_attempt_ended_with(journal: Journal, file: Path) -> None:
    """A note on the way is the newest reading; the end of an attempt has its own, in its own transaction, and does not
    undo a note: where the disk is full for a while it is the older one of the two.
    """
    early, late = Reading({"down/train": 1}), Reading({"down/train": 9}, {"fold": (2, 0.5)}, {"size": 1})
    journal.open_attempt(1, ["a"], OTHER)
    journal.commit(1, 1, ["a"], {}, course=Course(1, 1, 1.0, 2.0, {}, {}, reading=early))
    journal = reopened(journal, file)
    assert {"closed": early} == journal.readings()
    journal.note(late)
    assert {"now": late, "closed": early} == journal.readings()
    journal.open_attempt(2, ["a"], OTHER)
    journal.abandon(2, 1, {}, "", course=Course(2, 1, 1.0, 2.0, {}, {}, reading=early))
    assert {"now": late, "closed": early} == journal.readings()
    journal.note(late, closed=True)
    assert {"now": late, "closed": late} == journal.readings()


def test_a_meter_counts_on_from_the_newest_of_both(journal: Journal) -> None:
    """Killed right after the end of an attempt, the last note is older than that."""
    meter = Meter()
    journal.note(Reading({"down/train": 5, "up/train": 4}, {"fold": (1, 0.5)}))
    ended = Reading({"down/train": 7, "up/train": 4}, {"fold": (2, 0.75)}, {"size": 1})
    journal.open_attempt(1, ["a"], OTHER)
    journal.commit(1, 1, ["a"], {}, course=Course(1, 1, 1.0, 2.0, {}, {}, reading=ended))
    count_on(meter, journal)
    assert (7, 4, 1) == (meter.bytes["down", "train"], meter.bytes["up", "train"], meter.refusals["size"])
    assert (Summed(2, 0.75), ended) == (meter.seconds["fold"], meter.closed)
