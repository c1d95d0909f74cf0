"""A coordinator's journal on a damaged disk, and a site's own small files."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from pfl_client.run_folder.audit import Book, Head
from pfl_client.run_folder.vault_generations import Owner, Vault
from pfl_common.errors import StateError
from pfl_server.decisions.sampling import Draw
from pfl_server.store.journal import Journal
from pfl_server.store.journal_check import find_damage
from pfl_server.telemetry.course import Course
from tests.fuzz.target import as_file, target


@cache
def _journal() -> bytes:
    place = as_file(b"", "made/journal.sqlite")
    place.unlink()
    journal = Journal(place, durability="process")
    journal.begin("run", "{}")
    for number in range(1, 4):
        journal.open_attempt(number, ("a", "b"), Draw(("a", "b"), frozenset()), at=1.0)
        course = Course(number, 1, 1.0, 2.0, {"fold": 0.5}, {"down/train": 9})
        journal.abandon(number, 1, {"a": "lease"}, "too few", course=course)
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


OWNER = Owner("r", "s", "a")


@target("vault_pointer", StateError, seeds=lambda: [b'{"owner":{"run":"r","spec":"s","site":"a"},"kept":[]}'])
def read_vault(content: bytes) -> None:
    """The file that says what a site's vault holds: damaged, it is said so when the vault is opened."""
    Vault(as_file(content, "vault/vault.json").parent, OWNER).close()


@target("audit", StateError, seeds=lambda: [b'{"kind": "update", "bytes": 3, "before": "ab"}\n', b"ab 3\n"])
def read_audit(content: bytes) -> None:
    """The list of what left, and its head."""
    file = as_file(content, "audit/audit.jsonl")
    list(Book(file).lines())
    head = file.with_name("audit.head")
    head.write_bytes(content)
    Head.read(Path(file.parent))
