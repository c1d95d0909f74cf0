"""Updates and their receipts, joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pfl_deploy.operator.audit_entries import Entry, key_of, merge, read_lines


def entry(kind: str, line: int = 1, task: str = "t", digest: str = "d", **more: Any) -> Entry:
    """One of the run r."""
    return Entry("audit.jsonl", line, kind, {"run": "r", "task": task, "digest": digest, **more})


def test_an_update_and_its_receipt_are_one() -> None:
    """Task and bytes decide: a receipt for other bytes is none for these."""
    (one,) = merge([entry("update"), entry("receipt", 2, receipt="ab")])
    assert ("update", 1, "ab") == (one.kind, one.line, one.receipt)
    (other,) = merge([entry("update"), entry("receipt", 2, digest="e", receipt="ab")])
    assert "" == other.receipt


def test_a_receipt_without_a_signature_is_given_all_the_same() -> None:
    """As a simulation gives them."""
    assert ["given"] == [one.receipt for one in merge([entry("update"), entry("receipt", 2)])]


def test_an_update_that_was_sent_again_stands_once() -> None:
    """Other bytes for the same task are another; scores are listed as often as they were sent."""
    kinds = [
        entry("update"),
        entry("update", 2),
        entry("update", 3, digest="e"),
        entry("scores", 4),
        entry("scores", 5),
    ]
    assert [1, 3, 4, 5] == [one.line for one in merge(kinds)]


def test_numbers_of_an_entry() -> None:
    """Calls are summed; what is no number counts nothing."""
    calls = entry("calls", calls={"Beat": [3, 90], "NextTask": [2, 40], "Odd": "x"})
    assert (5, 1, 7, 0) == (
        calls.count,
        entry("update").count,
        entry("update", bytes=7).size,
        entry("update").size,
    )
    assert ("r", "t", "d") == key_of(entry("update"))


def test_lists_of_older_releases_come_first(tmp_path: Path) -> None:
    """Each line of theirs is an update with its receipt, of the run its folder is named after; others are left out."""
    old = tmp_path / "runs" / "r0" / "audit.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text(json.dumps({"task": "t", "receipt": "ab"}) + "\n")
    (tmp_path / "audit.jsonl").write_text('{"kind": "scores"}\njunk\n{}\n{"kind": "half')
    assert [
        ("runs/r0/audit.jsonl", 1, "update", "r0", "ab"),
        ("audit.jsonl", 1, "scores", "", ""),
        ("audit.jsonl", 3, "?", "", ""),
    ] == [(one.book, one.line, one.kind, one.run, one.receipt) for one in read_lines(tmp_path)]
