"""The file of a run's journal: how it is opened, and how what is committed gets into it."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from pfl_server.settings import Durability
from pfl_server.store.journal_migration import check_version, migrate

SYNCHRONOUS = {"power": "full", "process": "off"}


def connect(file: Path, durability: Durability) -> sqlite3.Connection:
    """Open a journal, new or old; one of this version is not changed by that."""
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    try:
        # Before anything that writes: a journal of a newer release is left as it is.
        check_version(db, file)
        db.execute(f"pragma synchronous={SYNCHRONOUS[durability]}")
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db


def write_ahead(db: sqlite3.Connection) -> None:
    """From now on a commit is one write and one sync at the end of a file beside the journal, where a rollback journal
    takes four syncs. On a disk that has not what this needs (memory that two programs share) it stays one of those.
    """
    try:
        (mode,) = db.execute("pragma journal_mode=wal").fetchone()
    except sqlite3.OperationalError:
        mode = ""
    if mode != "wal":
        with suppress(sqlite3.OperationalError):
            db.execute("pragma journal_mode=truncate")
