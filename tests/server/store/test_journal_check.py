"""A journal is read whole before anything relies on it: whatever is wrong with it is told, and nothing is met later."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from pfl_server.decisions.sampling import Draw
from pfl_server.store import journal_schema
from pfl_server.store.journal import Journal
from pfl_server.store.journal_check import find_damage
from pfl_server.store.journal_migration import NewerJournal, columns_at, newest
from pfl_server.store.journal_schema import STEPS, STRUCTURED
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.course import Course

ROUNDS = 40


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A journal of some rounds."""
    place = tmp_path / "journal.sqlite"
    journal = Journal(place, durability="process")
    journal.begin("run", "{}")
    draw = Draw(("a", "b"), frozenset())
    for number in range(1, ROUNDS):
        journal.open_attempt(number, ("a", "b"), draw, at=1.0)
        course = Course(
            number, 1, 1.0, 2.0, {"fold": 0.5}, {"down/train": 9}, reading=Reading({"down/train": 9})
        )
        journal.abandon(number, 1, {"a": "lease"}, "too few: " + "x" * 200, course=course)
    journal.close()
    return place


def read_all(file: Path) -> None:
    """What a coordinator reads of a journal when it goes on."""
    journal = Journal(file, durability="process")
    try:
        for part in (journal.spec, journal.status, journal.sites, journal.rounds, journal.course):
            part()
        for other in (journal.scores, journal.handed, journal.goodbyes, journal.readings):
            other()
    finally:
        journal.close()


def change(file: Path, words: str, *given: object) -> None:
    """Behind the journal's back."""
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("pragma writable_schema = on")
        db.execute(words, given)


def test_a_whole_one(file: Path) -> None:
    """Nothing is found."""
    assert "" == find_damage(file)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("update attempt set reason = cast(x'ff41' as text) where round = 7", "a text in it is no text"),
        ("update attempt set losses = '{' where round = 7", "a row of the table attempt cannot be read"),
        ("update course set bytes = '' where round = 7", "a row of the table course cannot be read"),
        (
            "update sqlite_master set sql = 'create table score ' || cast(x'ff' as text) where name = 'score'",
            "its schema is no text",
        ),
        ("update sqlite_master set sql = 'create table score (' where name = 'score'", "malformed"),
        (
            "update sqlite_master set sql = replace(sql, 'scores', 'sco_es') where name = 'score'",
            "the table score has no column scores",
        ),
    ],
)
def test_what_stands_in_it_is_told(file: Path, words: str, why: str) -> None:
    """Pages that hang together are not enough: what was written there must be readable."""
    change(file, words)
    assert why in find_damage(file)


def test_an_index_that_says_something_else_is_told(file: Path) -> None:
    """Its pages are as they should be, but a round has another number than in its row and would not be found."""
    with closing(sqlite3.connect(file)) as db:
        (page,) = db.execute(
            "select rootpage from sqlite_master where name = 'sqlite_autoindex_course_1'"
        ).fetchone()
        (size,) = db.execute("pragma page_size").fetchone()
    content = bytearray(file.read_bytes())
    start = (page - 1) * size
    cells = int.from_bytes(content[start + 3 : start + 5], "big")
    pointer = start + 8 + 2 * (cells - 1)
    cell = start + int.from_bytes(content[pointer : pointer + 2], "big")
    # Two lengths, three types (a byte, the number one, a byte), then the round itself.
    assert (bytes([4, 1, 9, 1]), ROUNDS - 1) == (bytes(content[cell + 1 : cell + 5]), content[cell + 5])
    content[cell + 5] = ROUNDS
    file.write_bytes(content)
    assert "index" in find_damage(file)


def test_all_structured_columns_are_known(tmp_path: Path) -> None:
    """A table or column that was renamed would be left out without a word."""
    there = columns_at(newest())
    for table, columns in STRUCTURED.items():
        assert {*columns} <= there[table], table


@pytest.mark.parametrize("version", range(len(STEPS) + 1))
def test_a_column_is_missed_from_the_version_on_that_has_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A journal that is still to be brought there is not damaged; one that says it has been there is."""
    change(file, f"pragma user_version = {version}")
    monkeypatch.setattr(journal_schema, "STEPS", (*STEPS, ("alter table score add column spread text",)))
    assert "" == find_damage(file)
    change(file, f"pragma user_version = {len(STEPS) + 1}")
    assert "the table score has no column spread" == find_damage(file)


def test_a_table_is_missed_unless_the_journal_is_from_before_there_were_versions(file: Path) -> None:
    """Opened, such an old one gets it; of any other version it was there and is lost."""
    change(file, "drop table goodbye")
    assert "the table goodbye is missing" == find_damage(file)
    change(file, "pragma user_version = 0")
    assert "" == find_damage(file)


def test_a_newer_one_is_not_damaged(file: Path) -> None:
    """What stands in it is for a newer release to check; that its pages hang together is not."""
    change(file, f"pragma user_version = {newest() + 1}")
    change(file, "alter table score rename column scores to sums")
    assert "" == find_damage(file)
    file.write_bytes(file.read_bytes()[: 2 * 4096])
    assert "" != find_damage(file)


def test_a_version_below_zero_is_damage(file: Path) -> None:
    """No release writes one."""
    change(file, "pragma user_version = -3")
    assert "its version is -3" == find_damage(file)


def test_any_damage_is_told_or_does_not_matter(file: Path) -> None:
    """Bytes changed or cut anywhere: either it is told, in words, or all of it can still be read."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    draws, whole, told = np.random.default_rng(seed), file.read_bytes(), 0
    for _ in range(60):
        content = bytearray(whole[: draws.integers(1, len(whole))] if draws.random() < 0.3 else whole)
        for _ in range(draws.integers(1, 20)):
            content[draws.integers(len(content))] = draws.integers(256)
        file.write_bytes(content)
        file.with_name("journal.sqlite-journal").unlink(missing_ok=True)
        why = find_damage(file)
        assert why.isprintable()
        told += bool(why)
        if not why:
            try:
                read_all(file)
            except NewerJournal:
                # The bytes changed are those of its version: told, in other words.
                told += 1
    assert told
