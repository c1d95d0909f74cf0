"""A journal of an older version is brought to this one, whole or not at all; a newer one is refused and left alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pfl_common.spec.messages import Receipt
from pfl_server.decisions.sampling import Draw
from pfl_server.store import journal_schema
from pfl_server.store.journal import Journal
from pfl_server.store.journal_migration import NewerJournal, migrate, newest
from pfl_server.store.journal_schema import STEPS
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.course import Course

DRAW = Draw(("a",), frozenset())
COLUMN = "alter table attempt add column machine text not null default 'unknown'"
LATER = (*STEPS, (COLUMN,))
"""The steps of a release to come."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A journal of this release with one round."""
    place = tmp_path / "journal.sqlite"
    journal = Journal(place)
    journal.begin("run-1", "{}")
    journal.open_attempt(1, ["a"], DRAW)
    journal.commit(1, 1, ["a"], {})
    journal.close()
    return place


def look(file: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(statement).fetchall()


def write(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


def test_a_new_journal_says_its_version(file: Path) -> None:
    """It has been through all steps there are."""
    assert [(len(STEPS),)] == look(file, "pragma user_version")


@pytest.mark.parametrize("version", range(len(STEPS) + 1))
def test_an_older_one_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Its rows stay, the step that is new is taken once, and rounds follow."""
    write(file, f"pragma user_version = {version}")
    monkeypatch.setattr(journal_schema, "STEPS", LATER)
    for number in (2, 3):
        journal = Journal(file)
        assert 1 == journal.open_attempt(number, ["a"], DRAW)
        journal.commit(number, 1, ["a"], {})
        journal.close()
    assert [(len(LATER),)] == look(file, "pragma user_version")
    assert [(number, "unknown") for number in (1, 2, 3)] == look(file, "select round, machine from attempt")


def test_a_column_that_is_new_shifts_no_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table gets one more: all that is written still goes where it is read."""
    tables = [str(name) for (name,) in look(file, "select name from sqlite_master where type = 'table'")]
    wider = tuple(f"alter table {table} add column machine text default 'unknown'" for table in tables)
    monkeypatch.setattr(journal_schema, "STEPS", (*STEPS, wider))
    file.unlink()
    journal = Journal(file)
    reading = Reading({"down/train": 1})
    course = Course(
        1, 1, 1.0, 2.0, {"train": 3.0}, {"down": 4}, {"drift": 5.0}, {"loss": 6.0}, reading=reading
    )
    journal.begin("run-2", "{}")
    journal.register("a", "{}", late=False)
    journal.leave("a", 7.0)
    journal.remove("b", 9.0)
    journal.open_attempt(1, ["a"], DRAW, at=8.0)
    journal.hand_out("000001-1-train", "a", 0)
    journal.receive(Receipt("run-2", "000001-1-train", "a", "d1"), 1, 1, "s1", signature="s")
    journal.report("000001-1-train", "a", {"x": [1.0]})
    assert [{"x": [1.0]}] == journal.reports("000001-1-train")
    journal.sum_up(["000001-1-train"], {"x": [1.0]})
    journal.commit(1, 1, ["a"], {}, course=course, changes={"a": 9.0})
    journal.fall_back(2, 0)
    journal.note(reading)
    assert ("{}", {"a": "{}"}, {"a": 7.0}) == (journal.spec(), journal.sites(), journal.goodbyes())
    assert ({"b": 9.0}, 8.0) == (journal.removals(), journal.attempt(1, 1).opened)
    assert ({"000001-1-train": {"a": 0}}, ("d1", "s1", "s")) == (journal.handed(), journal.receipt("a", 1, 1))
    assert {"000001-1-train": {"x": [1.0]}} == journal.scores()
    assert [course] == journal.course()
    assert {"now": reading, "closed": reading} == journal.readings()
    assert ([{"a": 9.0}], {2: 0}) == (journal.changes(), journal.fallbacks())
    journal.close()
    for table in set(tables) - {"report"}:
        assert {("unknown",)} == set(look(file, f"select machine from {table}")), table


def test_a_journal_of_this_version_is_not_written(file: Path) -> None:
    """To open it changes nothing in it."""
    before = file.read_bytes()
    Journal(file).close()
    assert before == file.read_bytes()


def test_a_migration_that_fails_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what its earlier statements did, nor the version; the error is the one that came."""
    broken = (COLUMN, "alter table attempt add column machine text")
    monkeypatch.setattr(journal_schema, "STEPS", (*STEPS, broken))
    before = look(file, "select sql from sqlite_master")
    with pytest.raises(sqlite3.OperationalError, match="duplicate column"):
        Journal(file)
    assert ([(len(STEPS),)], before) == (
        look(file, "pragma user_version"),
        look(file, "select sql from sqlite_master"),
    )


def test_a_migration_is_one_transaction(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two steps would otherwise leave a journal of a version nobody wrote."""
    monkeypatch.setattr(journal_schema, "STEPS", (*LATER, ("drop table goodbye",)))
    asked: list[str] = []
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.set_trace_callback(asked.append)
        migrate(db)
    marks = [words for words in asked if words in ("begin immediate", COLUMN, "drop table goodbye", "commit")]
    assert ["begin immediate", COLUMN, "drop table goodbye", "commit"] == marks
    assert asked.index(f"pragma user_version = {len(LATER) + 1}") < asked.index("commit")


def test_a_newer_one_is_refused_and_left_alone(file: Path) -> None:
    """The words say which version was seen, which ones are known, and what to do."""
    write(file, f"pragma user_version = {newest() + 1}", "alter table score rename column scores to sums")
    before = file.read_bytes()
    with pytest.raises(NewerJournal) as error:
        Journal(file)
    assert f"{file} is a journal of version {newest() + 1}" in error.value.seen
    assert f"version {newest()}" in error.value.expected
    assert "release that wrote it" in error.value.advice
    assert (before, [file]) == (file.read_bytes(), list(file.parent.iterdir()))
