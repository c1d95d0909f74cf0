"""Who could be drawn is told of every attempt, and written down where it changes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pfl_server.decisions.sampling import Draw
from pfl_server.store.journal import Journal

DRAW = Draw(("a",), frozenset())


@pytest.fixture
def journal(file: Path) -> Iterator[Journal]:
    journal = Journal(file, durability="process")
    yield journal
    journal.close()


def written(journal: Journal) -> list[tuple[int, int, list[str]]]:
    """The lists in the file."""
    found = journal.scribe.ask(
        lambda page: page.rows("select * from candidates order by round, attempt")
    ).result()
    return [(number, attempt, json.loads(names)) for number, attempt, names in found]


def test_candidates_are_written_where_they_change(journal: Journal) -> None:
    """Ten rounds from one list write it once; an attempt without one of them, and the list again, are two more."""
    for number in range(1, 11):
        journal.open_attempt(number, ("a", "b", "c"), DRAW)
        journal.commit(number, 1, ["a"], {})
    journal.open_attempt(11, ("a", "c"), DRAW)
    journal.abandon(11, 1, {}, "")
    journal.open_attempt(11, ("c", "b", "a"), DRAW)
    assert [(1, 1, ["a", "b", "c"]), (11, 1, ["a", "c"]), (11, 2, ["a", "b", "c"])] == written(journal)
    told = [row["candidates"] for row in journal.rounds()]
    assert [*[["a", "b", "c"]] * 10, ["a", "c"], ["a", "b", "c"]] == told


def test_a_restart_writes_no_list_twice(journal: Journal, file: Path) -> None:
    """The next life compares with what is there."""
    journal.open_attempt(1, ("a", "b"), DRAW)
    journal.commit(1, 1, ["a"], {})
    journal.close()
    again = Journal(file, durability="process")
    again.open_attempt(2, ("a", "b"), DRAW)
    assert [(1, 1, ["a", "b"])] == written(again)
    assert [["a", "b"], ["a", "b"]] == [row["candidates"] for row in again.rounds()]
    again.close()


def test_a_list_that_was_not_written_is_written_again(journal: Journal) -> None:
    """An attempt that cannot be opened takes its list with it."""
    roster = ("a", "b")
    with pytest.raises(sqlite3.ProgrammingError):
        journal.open_attempt(1, roster, DRAW, at=object())
    assert [] == written(journal)
    journal.open_attempt(1, roster, DRAW)
    assert [(1, 1, ["a", "b"])] == written(journal)


def test_an_older_journal_has_its_lists_in_its_rows(file: Path) -> None:
    """They are told as they stand there, and rounds of this release follow."""
    Journal(file, durability="process").close()
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("drop table candidates")
        db.execute("pragma user_version = 3")
        db.execute(
            "insert into attempt (round, attempt, candidates, cohort, drops, status)"
            """ values (1, 1, '["a", "old"]', '["a"]', '[]', 'committed')"""
        )
    journal = Journal(file, durability="process")
    journal.open_attempt(2, ("a", "new"), DRAW)
    assert [["a", "old"], ["a", "new"]] == [row["candidates"] for row in journal.rounds()]
    journal.close()
