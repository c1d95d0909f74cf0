"""What the coordinator has promised and decided, in one SQLite file: it survives a kill at any instant.

One connection, used from one thread; every method is one transaction. Tensors never enter: they lie in
checkpoints and in the spool, and the journal only names them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pfl_common.messages import Receipt, Scores
from pfl_common.run import ClientId
from pfl_server.sampling import Draw

SCHEMA = """
create table if not exists run (
    id text primary key, spec text not null, status text not null, words text not null);
create table if not exists site (name text primary key, description text not null, late integer not null);
create table if not exists attempt (
    round integer, attempt integer, candidates text not null, cohort text not null, drops text not null,
    status text not null, counted text not null default '[]', losses text not null default '{}',
    reason text not null default '', primary key (round, attempt));
create table if not exists receipt (
    round integer, attempt integer, site text, key text not null, digest text not null, spooled text not null,
    primary key (round, attempt, site));
create table if not exists report (key text, site text, scores text not null, primary key (key, site));
create table if not exists score (key text primary key, scores text not null);
"""
SETTLE = """
update attempt set status = ?, counted = ?, losses = ?, reason = ? where round = ? and attempt = ?
"""


@dataclass(frozen=True)
class Attempt:
    """A round once opened: who could take part, who was asked, how it ended."""

    round: int
    attempt: int
    candidates: tuple[ClientId, ...]
    draw: Draw
    status: str


class Journal:
    """The book of one run."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._db.execute("pragma journal_mode=truncate")
        self._db.execute("pragma synchronous=full")
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        """No more writing."""
        self._db.close()

    def begin(self, run: str, spec: str) -> None:
        """The specification is frozen: from here on the run can be resumed."""
        self._write("insert into run values (?, ?, 'running', '')", run, spec)

    def spec(self) -> str | None:
        """The frozen specification, if there is one."""
        row = self._db.execute("select spec from run").fetchone()
        return row[0] if row else None

    def status(self) -> tuple[str, str]:
        """running, finished, stopped or failed, and why."""
        row = self._db.execute("select status, words from run").fetchone()
        return (row[0], row[1]) if row else ("gathering", "")

    def end(self, status: str, words: str = "") -> None:
        """The run is over."""
        self._write("update run set status = ?, words = ?", status, words)

    def register(self, site: ClientId, description: str, *, late: bool) -> None:
        """A site takes part from now on; registering again only renews its description."""
        self._write(
            "insert into site values (?, ?, ?)"
            " on conflict (name) do update set description = excluded.description",
            site,
            description,
            int(late),
        )

    def sites(self) -> dict[ClientId, str]:
        """All registered sites with their descriptions, by name."""
        return dict(self._db.execute("select name, description from site order by name").fetchall())

    def open_attempt(self, number: int, candidates: Sequence[ClientId], draw: Draw) -> int:
        """Open a round, or find the attempt that a restarted coordinator had open; gives its number."""
        row = self._db.execute(
            "select attempt, status from attempt where round = ? order by attempt desc", (number,)
        ).fetchone()
        if row and row[1] == "open":
            return int(row[0])
        attempt = int(row[0]) + 1 if row else 1
        values = (json.dumps(sorted(part)) for part in (candidates, draw.cohort, draw.drops))
        self._write(
            "insert into attempt (round, attempt, candidates, cohort, drops, status)"
            " values (?, ?, ?, ?, ?, 'open')",
            number,
            attempt,
            *values,
        )
        return attempt

    def attempt(self, number: int, attempt: int) -> Attempt:
        """An attempt as it was opened."""
        candidates, cohort, drops, status = self._db.execute(
            "select candidates, cohort, drops, status from attempt where round = ? and attempt = ?",
            (number, attempt),
        ).fetchone()
        draw = Draw(tuple(json.loads(cohort)), frozenset(json.loads(drops)))
        return Attempt(number, attempt, tuple(json.loads(candidates)), draw, status)

    def commit(
        self, number: int, attempt: int, counted: Sequence[ClientId], losses: dict[ClientId, str]
    ) -> None:
        """The round is closed and its checkpoint is on disk."""
        words = json.dumps(list(counted)), json.dumps(losses, sort_keys=True)
        self._write(SETTLE, "committed", *words, "", number, attempt)

    def abandon(self, number: int, attempt: int, losses: dict[ClientId, str], reason: str) -> None:
        """The attempt is given up; none of its updates counts."""
        words = "[]", json.dumps(losses, sort_keys=True)
        self._write(SETTLE, "abandoned", *words, reason, number, attempt)

    def counted(self, number: int, attempt: int) -> tuple[ClientId, ...]:
        """Whose updates a committed attempt counted, in site order."""
        row = self._db.execute(
            "select counted from attempt where round = ? and attempt = ?", (number, attempt)
        ).fetchone()
        return tuple(json.loads(row[0]))

    def committed(self) -> dict[int, int]:
        """Committed rounds with the attempt that counted."""
        rows = self._db.execute(
            "select round, attempt from attempt where status = 'committed' order by round"
        )
        return dict(rows.fetchall())

    def receive(self, receipt: Receipt, number: int, attempt: int, spooled: str) -> None:
        """From here on the coordinator answers for this update."""
        self._write(
            "insert into receipt values (?, ?, ?, ?, ?, ?)",
            number,
            attempt,
            receipt.site,
            receipt.key,
            receipt.digest,
            spooled,
        )

    def forget(self, site: ClientId, number: int, attempt: int) -> None:
        """The update of a receipt is gone or torn (a power loss): the site will be asked for it again."""
        self._write("delete from receipt where site = ? and round = ? and attempt = ?", site, number, attempt)

    def receipts(self, number: int, attempt: int) -> dict[ClientId, tuple[str, str]]:
        """Sites whose update is here, with its digest and its name in the spool."""
        rows = self._db.execute(
            "select site, digest, spooled from receipt where round = ? and attempt = ? order by site",
            (number, attempt),
        )
        return {site: (digest, spooled) for site, digest, spooled in rows}

    def report(self, key: str, site: ClientId, scores: Scores) -> None:
        """One site's evaluation; kept only until it has been summed."""
        self._write("insert or replace into report values (?, ?, ?)", key, site, json.dumps(scores))

    def reports(self, key: str) -> list[Scores]:
        """The evaluations of a task, in site order."""
        rows = self._db.execute("select scores from report where key = ? order by site", (key,))
        return [json.loads(row[0]) for row in rows]

    def sum_up(self, keys: Sequence[str], scores: Scores) -> None:
        """Keep the sum of some tasks' evaluations under the first one's key and forget the single ones."""
        with self._db:
            self._db.execute("begin")
            self._db.execute("insert or replace into score values (?, ?)", (keys[0], json.dumps(scores)))
            self._db.executemany("delete from report where key = ?", [(key,) for key in keys])

    def scores(self) -> dict[str, Scores]:
        """All summed evaluations, by task."""
        rows = self._db.execute("select key, scores from score order by key")
        return {key: json.loads(text) for key, text in rows}

    def rounds(self) -> list[dict[str, object]]:
        """Every attempt as plain values, for status, report and replay."""
        names = ("round", "attempt", "candidates", "cohort", "drops", "status", "counted", "losses", "reason")
        rows = self._db.execute(f"select {', '.join(names)} from attempt order by round, attempt")
        return [_plain(dict(zip(names, row, strict=True))) for row in rows]

    def _write(self, statement: str, *values: object) -> None:
        self._db.execute(statement, values)


def _plain(row: dict[str, object]) -> dict[str, object]:
    texts = ("candidates", "cohort", "drops", "counted", "losses")
    return {name: json.loads(str(value)) if name in texts else value for name, value in row.items()}
