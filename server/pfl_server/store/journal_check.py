"""Checks that a run's journal is whole, by reading all of it before anything relies on it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any  # each column holds something else

from pydantic import TypeAdapter, ValidationError

from pfl_server.store.journal_migration import columns_at, newest, read_columns, read_version
from pfl_server.store.journal_schema import STRUCTURED
from pfl_server.telemetry.rejections import readable

_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def find_damage(file: Path) -> str:
    """Why a journal cannot be read; nothing if it can."""
    if not file.exists() or not file.stat().st_size:
        return "it is missing or empty"
    with closing(sqlite3.connect(file)) as db:
        try:
            found = str(db.execute("pragma integrity_check(1)").fetchone()[0])
            return _find_unreadable(db) if found == "ok" else readable(found.splitlines()[-1])
        except sqlite3.Error as error:
            # A full disk, or another who holds it, is no damage. What Python cannot decode has no code of SQLite's.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
            if code & 0xFF not in _DAMAGED:
                raise
            return readable(str(error)) if hasattr(error, "sqlite_errorcode") else "a text in it is no text"
        except UnicodeDecodeError:
            # Python's sqlite3 fails at SQLite's own message about a damaged schema.
            return "its schema is no text"


def _find_unreadable(db: sqlite3.Connection) -> str:
    """What SQLite does not check: what stands in the pages. That of a newer release is for that one to read."""
    if (version := read_version(db)) > newest():
        return ""
    return f"its version is {version}" if version < 0 else _find_missing(db, version) or _find_misread(db)


def _find_missing(db: sqlite3.Connection, version: int) -> str:
    # A journal written before there were versions has the first one's tables, or those its release had of them.
    for table, columns in columns_at(max(version, 1)).items():
        there = read_columns(db, table)
        if version and not there:
            return f"the table {table} is missing"
        if there and (lacking := columns - there):
            return f"the table {table} has no column {min(lacking)}"
    return ""


def _find_misread(db: sqlite3.Connection) -> str:
    tables = db.execute("select name from sqlite_master where type = 'table'").fetchall()
    for (table,) in tables:
        cursor = db.execute(f'select * from "{table}"')
        names = [column[0] for column in cursor.description]
        kinds = STRUCTURED.get(table, {})
        structured = [(names.index(name), kind) for name, kind in kinds.items() if name in names]
        for row in cursor:
            if not all(_holds(row[place], kind) for place, kind in structured):
                return f"a row of the table {table} cannot be read"
    return ""


def _holds(value: object, kind: TypeAdapter[Any]) -> bool:
    """Whether a text is JSON, and of the form that is read there."""
    try:
        kind.validate_json(str(value), strict=True)
    except ValidationError:
        return False
    return True
