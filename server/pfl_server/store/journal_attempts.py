"""The journal's rows of attempts. Who could be drawn is written where it changes, and read for every attempt."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pfl_common.spec.run import ClientId
from pfl_server.store.journal_thread import Page

COLUMNS = ("round", "attempt", "candidates", "cohort", "drops", "status", "counted", "losses", "reason")
TEXTS = frozenset({"candidates", "cohort", "drops", "counted", "losses"})
"""Columns that hold JSON."""
NEWEST = "select names from candidates order by round desc, attempt desc limit 1"


def write_candidates(page: Page, number: int, attempt: int, candidates: Sequence[ClientId]) -> None:
    """Write down who could be drawn for this attempt, unless the same could be for the one before."""
    names = json.dumps(sorted(candidates))
    if page.rows(NEWEST) != [(names,)]:
        page.write("insert into candidates (round, attempt, names) values (?, ?, ?)", number, attempt, names)


def read_attempts(page: Page) -> list[dict[str, object]]:
    """Every attempt as plain values, oldest first; those of older releases have their candidates in their own row."""
    rows = page.rows(f"select {', '.join(COLUMNS)} from attempt order by round, attempt")
    changes = page.rows("select round, attempt, names from candidates order by round desc, attempt desc")
    names: list[ClientId] = []
    attempts = []
    for row in rows:
        while changes and changes[-1][:2] <= row[:2]:
            names = json.loads(changes.pop()[2])
        attempt = _plain(dict(zip(COLUMNS, row, strict=True)))
        attempts.append({**attempt, "candidates": attempt["candidates"] or names})
    return attempts


def _plain(row: dict[str, object]) -> dict[str, object]:
    return {name: json.loads(str(value)) if name in TEXTS else value for name, value in row.items()}
