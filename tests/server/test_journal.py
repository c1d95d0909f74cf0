"""What the journal promises survives its process, and each promise is made once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from pfl_common.messages import Receipt
from pfl_server.journal import Journal
from pfl_server.sampling import Draw

DRAW = Draw(("a", "b"), frozenset({"b"}))
OTHER = Draw(("c",), frozenset())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def reopened(journal: Journal, file: Path) -> Journal:
    journal.close()
    return Journal(file)


@pytest.fixture
def journal(file: Path):
    journal = Journal(file)
    yield journal
    journal.close()


def receipt(site: str = "a", digest: str = "d1") -> Receipt:
    return Receipt("run-1", "000001-1-train", site, digest)


def test_durability_is_asked_for(journal: Journal) -> None:
    """A commit is on disk when it returns: rollback journal, full synchronisation."""
    (mode,), (level,) = (
        journal._db.execute(f"pragma {word}").fetchone() for word in ("journal_mode", "synchronous")
    )
    assert "truncate" == mode
    assert level >= 2


def test_an_open_attempt_is_found_again(journal: Journal, file: Path) -> None:
    """A restarted coordinator goes on with the attempt it had open, with the draw of that time."""
    assert 1 == journal.open_attempt(1, "cab", DRAW)
    again = reopened(journal, file)
    assert 1 == again.open_attempt(1, "c", OTHER)
    found = again.attempt(1, 1)
    assert (("a", "b", "c"), DRAW, "open") == (found.candidates, found.draw, found.status)
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
    assert [("a", 1), ("b", 0)] == journal._db.execute("select name, late from site order by name").fetchall()
