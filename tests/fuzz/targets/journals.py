"""A coordinator's journal on a damaged disk, and a site's own small files."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from pfl_client.run_folder.audit import HEAD, POLICY, RECEIPT, UPDATE, Audit, Book, Head, entries
from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_common.errors import StateError
from pfl_common.spec.messages import Receipt
from pfl_server.decisions.sampling import Draw
from pfl_server.store.journal import Journal
from pfl_server.store.journal_check import find_damage
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.course import Course
from tests.fuzz.target import as_file, target

DESCRIPTION = json.dumps({"shape": [2], "classes": ["a", "b"], "samples": 7})


@cache
def _journal() -> bytes:
    """A journal with rows in every table."""
    place = as_file(b"", "made/journal.sqlite")
    place.unlink()
    journal = Journal(place, durability="process")
    journal.begin("run", "{}")
    for site in ("a", "b"):
        journal.register(site, DESCRIPTION, late=False)
    for number in range(1, 4):
        journal.open_attempt(number, ("a", "b"), Draw(("a", "b"), frozenset()), at=1.0)
        course = Course(number, 1, 1.0, 2.0, {"fold": 0.5}, {"down/train": 9}, {"loss": 1.0}, {"a": 2.0})
        journal.abandon(number, 1, {"a": "lease"}, "too few", course=course)
    key = "000001-1-train"
    journal.hand_out(key, "a", 0)
    journal.report(key, "a", {"pre/test/combined": [1.0, 2.0]})
    journal.sum_up(["000002-1-train"], {"pre/test/combined": [1.0, 2.0]})
    journal.receive(Receipt("run", key, "a", "ab" * 32), 1, 1, "spooled")
    journal.note(Reading(), closed=True)
    journal.leave("b", 1.0)
    journal.close()
    return place.read_bytes()


@target(
    "journal",
    sqlite3.OperationalError,
    seeds=lambda: [_journal()],
    words=(b"[" * 2000, b'{"a":', b"SQLite format 3\0"),
)
def check_journal(content: bytes) -> None:
    """Whatever is wrong with it is told in one line."""
    said = find_damage(as_file(content, "journal.sqlite"))
    assert said.isprintable()


@target("rows", seeds=lambda: [b"[1, 2]", b'{"a": 1}', b"[" * 40])
def check_rows(content: bytes) -> None:
    """The same with pages that are whole and rows that are not."""
    place = as_file(_journal(), "rows.sqlite")
    with sqlite3.connect(place) as db:
        db.execute(
            "update attempt set candidates = ?",
            (content.decode(errors="surrogateescape").encode(errors="replace").decode(),),
        )
    db.close()
    assert find_damage(place).isprintable()


@target(
    "journal_rows",
    StateError,
    seeds=lambda: [
        b'[["attempt", "candidates", "[]"]]',
        b'[["course", "seconds", "{}"], ["score", "scores", "{}"]]',
    ],
)
def read_changed(content: bytes) -> None:
    """Rows that say other things than were written there: either the check says so, or all of it can be read."""
    place = as_file(_journal(), "changed.sqlite")
    if not _change(place, content):
        return
    said = find_damage(place)
    assert said.isprintable()
    if said:
        return
    journal = Journal(place, durability="process")
    try:
        for read in (journal.rounds, journal.course, journal.readings, journal.scores, journal.committed):
            read()
        for read in (journal.changes, journal.fallbacks, journal.handed, journal.goodbyes, journal.sites):
            read()
        for row in journal.rounds():
            journal.attempt(row["round"], row["attempt"])
            journal.receipts(row["round"], row["attempt"])
        journal.reports("000001-1-train")
        journal.declared("a")
    finally:
        journal.close()


def _change(place: Path, content: bytes) -> bool:
    """Write cells over; whether there was anything to write that its table takes."""
    try:
        cells = [(str(table), str(column), value) for table, column, value in json.loads(content)]
    except (ValueError, TypeError, RecursionError):
        return False
    with closing(sqlite3.connect(place)) as db, suppress(sqlite3.Error, OverflowError, UnicodeError):
        for table, column, value in cells:
            known = {row[1] for row in db.execute("select * from pragma_table_info(?)", (table,))}
            numbered = column in ("round", "attempt")  # by these a row is looked for
            if column in known and not numbered and isinstance(value, str | int | float | None):
                db.execute(f'update "{table}" set "{column}" = ?', (value,))
        db.commit()
        return True
    return False


OWNER = Owner("r", "s", "a")
POINTER = {
    "owner": {"run": "r", "spec": "s", "site": "a"},
    "generations": [{"mark": {"round": 1, "attempt": 1}, "file": "000001-1-1.safetensors"}],
    "upload": "000001-1-train",
    "serial": 1,
}


@target("vault_pointer", StateError, seeds=lambda: [json.dumps(POINTER).encode(), b'{"owner":{},"kept":[]}'])
def read_vault(content: bytes) -> None:
    """The file that says what a site's vault holds: damaged, it is said so when the vault is opened, and nothing but
    what lies in the vault is ever named by it.
    """
    folder = as_file(content, "vault/vault.json").parent
    as_file(b"kept", "vault/generations/000001-1-1.safetensors")
    beside = as_file(b"not of the vault", "beside.safetensors")
    vault = Vault(folder, OWNER)
    try:
        for mark in vault.marks():
            found = vault.at(mark.round)
            assert found is None or found.resolve().parent == (folder / "generations").resolve()
    finally:
        vault.close()
        assert beside.exists()


LINE = {
    "kind": "update",
    "bytes": 3,
    "before": "",
    "at": "2030-01-01T00:00:00+00:00",
    "run": "r",
    "task": "t",
}


@target(
    "audit",
    StateError,
    seeds=lambda: [json.dumps({**LINE, "kind": kind}).encode() + b"\n" for kind in (UPDATE, RECEIPT)],
    words=(b'"bytes": -1', b"[" * 3000),
)
def read_audit(content: bytes) -> None:
    """The list of what left, and its head: whatever lies there, a site goes on below it, and what it adds is found."""
    file = as_file(content, "audit/audit.jsonl")
    lines = list(Book(file).lines())
    head = file.with_name(HEAD)
    head.write_bytes(content)
    Head.read(file.parent)
    audit = Audit(file.parent)
    audit.note(POLICY, said="more")
    audit.flush()
    again = list(Book(file).lines())
    assert len(again) > len(lines)
    assert again[-1].said is not None
    assert again[-1].said["kind"] == POLICY
    list(entries(file.parent))
