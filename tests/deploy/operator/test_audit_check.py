"""A list checked without a federation: what it says of itself, and what cannot be told. `test_audit` has real ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pfl_deploy.operator.audit_check import Check, Checked
from pfl_deploy.operator.audit_entries import read_lines


def check(
    folder: Path, *lines: dict[str, Any], torn: str = "", head: dict[str, Any] | None = None
) -> Checked:
    """A list of these lines, each bound to the one before it, and its head."""
    before, text = "", ""
    for line in lines:
        written = json.dumps({**line, "before": before})
        before, text = hashlib.sha256(written.encode()).hexdigest(), f"{text}{written}\n"
    (folder / "audit.jsonl").write_text(text + torn)
    (folder / "audit.head").write_text(json.dumps(head or {"lines": len(lines), "sha256": before}))
    return Check(folder, list(read_lines(folder))).run()


def said(kind: str, **more: Any) -> dict[str, Any]:
    """A line about one task."""
    return {"kind": kind, "run": "r", "task": "t", "digest": "d", "bytes": 7, **more}


def test_nothing_is_whole(tmp_path: Path) -> None:
    """A site that has not begun has neither list nor head."""
    assert Checked(0, "", 0) == Check(tmp_path, []).run()


def test_a_receipt_needs_an_update_of_its_size(tmp_path: Path) -> None:
    """One for other bytes, and one that tells another size, are of no update that is listed."""
    for other in ({"digest": "e"}, {"bytes": 8}):
        found = check(tmp_path, said("update"), said("receipt", receipt="ab", **other))
        assert ("line 2: a receipt for t, of which no such update is listed",) == found.wrong


def test_what_cannot_be_checked_is_a_remark(tmp_path: Path) -> None:
    """No signature, no card to check one with, no receipt: none of them is counted, none is a fault."""
    for lines, words in (
        ([said("update"), said("receipt")], "line 2: a receipt without a signature"),
        ([said("update"), said("receipt", receipt="ab")], "no card of the coordinator is listed"),
        (
            [said("update"), said("update", digest="e")],
            "2 updates were sent, or about to be, and have no receipt",
        ),
    ):
        found = check(tmp_path, *lines)
        (remark,) = found.remarks
        assert words in remark
        assert ((), 0, 2) == (found.wrong, found.receipts, found.lines)


def test_what_the_site_itself_found(tmp_path: Path) -> None:
    """A torn line that it mended is a remark; lines it missed are a fault."""
    found = check(
        tmp_path, {"kind": "mended", "torn_bytes": 5}, {"kind": "missing", "found_lines": 2, "lines": 4}
    )
    assert ("line 1: before it 5 bytes of a line that was never finished",) == found.remarks
    (wrong,) = found.wrong
    assert wrong.startswith("line 2: when the site began here it found 2 of 4 lines")


def test_a_head_of_fewer_lines_is_right_and_of_another_line_wrong(tmp_path: Path) -> None:
    """It is written when a task is done: lines may have come since. Its hash is that of its own line."""
    first = json.dumps({"kind": "scores", "before": ""}).encode()
    right = {"lines": 1, "sha256": hashlib.sha256(first).hexdigest()}
    assert () == check(tmp_path, {"kind": "scores"}, {"kind": "scores"}, head=right).wrong
    (wrong,) = check(tmp_path, {"kind": "scores"}, head={"lines": 1, "sha256": "ab"}).wrong
    assert wrong.startswith("line 1 is not the one that audit.head names")


def test_a_line_that_is_being_written(tmp_path: Path) -> None:
    """It has the next number and is no fault."""
    found = check(tmp_path, {"kind": "scores"}, torn='{"kind"')
    assert ((), 1) == (found.wrong, found.lines)
    assert found.remarks[0].startswith("line 2 is not whole yet")
