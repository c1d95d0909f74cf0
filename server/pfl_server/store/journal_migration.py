"""Brings a journal of an older version to this release's, and refuses one of a newer version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path

from pfl_common.errors import StateError
from pfl_server.store import journal_schema


class NewerJournal(StateError):
    """A journal that a newer release has written, in a form this one does not know."""


def newest() -> int:
    """The version that this release writes and the last one it can read."""
    return len(journal_schema.STEPS)


def read_version(db: sqlite3.Connection) -> int:
    """The version of a journal; 0 of an empty file and of all journals written before there were versions."""
    return int(db.execute("pragma user_version").fetchone()[0])


def check_version(db: sqlite3.Connection, file: Path) -> None:
    """Refuse a journal that a newer release has written; `file` is what the user is told."""
    if (found := read_version(db)) > newest():
        raise NewerJournal(
            f"{file} is a journal of version {found}, written by a newer release of pfl",
            expected=f"version {newest()} or an older one",
            advice="use the release that wrote it, or a later one; the file is left as it is",
        )


def migrate(db: sqlite3.Connection) -> None:
    """Take all steps that a journal lacks in one transaction; on an error, or a kill, it stays as it was."""
    if read_version(db) == newest():
        return
    db.execute("begin immediate")
    try:
        for statement in chain(*journal_schema.STEPS[read_version(db) :]):
            db.execute(statement)
        db.execute(f"pragma user_version = {newest()}")
        db.execute("commit")
    except BaseException:
        # A full disk undoes the whole transaction by itself.
        if db.in_transaction:
            db.execute("rollback")
        raise


def columns_at(version: int) -> dict[str, set[str]]:
    """The columns of each table that a journal of this version has."""
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in chain(*journal_schema.STEPS[:version]):
            db.execute(statement)
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        return {table: read_columns(db, table) for table in tables}


def read_columns(db: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table; none if there is no such table."""
    return {row[1] for row in db.execute(f'pragma table_info("{table}")')}
