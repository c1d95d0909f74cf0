"""A full disk is told from every other fault."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pfl_common.files.full import is_crowded, is_full


@pytest.mark.parametrize(
    ("number", "full"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (errno.EACCES, False)],
)
def test_an_error_of_the_system(number: int, full: bool) -> None:
    """No room on the disk, or none left of the user's share of it."""
    assert full == is_full(OSError(number, "said by the system"))


def test_an_error_of_the_journal(tmp_path: Path) -> None:
    """SQLite says it in its own way; another fault of it is no full disk."""
    with sqlite3.connect(tmp_path / "journal") as journal:
        journal.execute("create table lines (text)")
        journal.execute("pragma max_page_count = 2")
        with pytest.raises(sqlite3.OperationalError) as full:
            journal.executemany("insert into lines values (?)", [("x" * 1000,)] * 100)
        with pytest.raises(sqlite3.OperationalError) as other:
            journal.execute("select nothing from nowhere")
    journal.close()
    assert (True, False) == (is_full(full.value), is_full(other.value))


def test_an_error_of_the_journal_without_a_code() -> None:
    """A text that is none is no full disk, and neither is an error of Python code; each is told as what it is."""
    with closing(sqlite3.connect(":memory:")) as journal, pytest.raises(sqlite3.OperationalError) as torn:
        journal.execute("select cast(x'ff' as text)").fetchall()
    assert not hasattr(torn.value, "sqlite_errorcode"), "else this would show nothing"
    assert not is_full(torn.value)
    assert not is_full(sqlite3.OperationalError("database or disk is full"))


@pytest.mark.parametrize(
    ("number", "crowded"),
    [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ENOSPC, False), (errno.EACCES, False)],
)
def test_an_error_for_want_of_a_descriptor(number: int, crowded: bool) -> None:
    """None left to the process or to the machine; a full disk is another matter, and goes by other means."""
    error = OSError(number, "said by the system")
    assert (crowded, number == errno.ENOSPC) == (is_crowded(error), is_full(error))


def test_a_journal_that_cannot_open_its_file(tmp_path: Path) -> None:
    """That is all SQLite says when there is no descriptor."""
    with pytest.raises(sqlite3.OperationalError) as error:
        sqlite3.connect(tmp_path / "none" / "journal")
    assert (True, False) == (is_crowded(error.value), is_full(error.value))
