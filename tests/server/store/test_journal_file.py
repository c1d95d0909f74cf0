"""A journal on the disk: one file when it is closed, and two while it is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pfl_server.store import journal_file
from pfl_server.store.journal import Journal


def look(journal: Journal, statement: str) -> list[tuple[object, ...]]:
    """What the journal's own connection says."""
    return journal.scribe.ask(lambda page: page.rows(statement)).result()


def test_a_closed_journal_is_one_file(journal: Journal, file: Path) -> None:
    """It can be copied, and read where nobody may write; while it is open, what was committed last lies beside it."""
    journal.begin("run-1", "{}")
    journal.end("stopped")
    assert file.with_name("journal.sqlite-wal").stat().st_size
    journal.close()
    assert [file] == list(file.parent.iterdir())
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
        assert [("run-1",)] == db.execute("select id from run").fetchall()
    assert b"\1\1" == file.read_bytes()[18:20], "by SQLite's own header a rollback journal"


def test_a_journal_that_is_only_read_stays_as_it_is(journal: Journal, file: Path) -> None:
    """Such as that of a run that another one begins from."""
    journal.begin("run-1", "{}")
    journal.close()
    before = file.read_bytes()
    again = Journal(file)
    assert "{}" == again.spec()
    again.close()
    assert before == file.read_bytes()


def test_a_reader_does_not_keep_a_journal_from_being_closed(journal: Journal, file: Path) -> None:
    """Nor does it read anything but what was committed."""
    journal.begin("run-1", "{}")
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None)) as db:
        db.execute("begin")
        assert [("run-1",)] == db.execute("select id from run").fetchall()
        journal.close()
        assert [("run-1",)] == db.execute("select id from run").fetchall()


def test_a_disk_without_shared_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of another machine: the journal is written as a rollback journal there."""
    connect = sqlite3.connect

    class Without:
        def __init__(self, *words: object, **named: object) -> None:
            self._db = connect(*words, **named)

        def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
            if statement == "pragma journal_mode=wal":
                raise sqlite3.OperationalError("disk I/O error")
            return self._db.execute(statement, *values)

        def __getattr__(self, name: str) -> object:
            return getattr(self._db, name)

    monkeypatch.setattr(journal_file.sqlite3, "connect", Without)
    journal = Journal(file)
    journal.begin("run-1", "{}")
    assert [("truncate",)] == look(journal, "pragma journal_mode")
    journal.close()
