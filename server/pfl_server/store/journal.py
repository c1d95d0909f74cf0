"""The coordinator's promises and decisions in one SQLite file, which survives a kill at any instant.

Each method that decides or promises something is done whole or not at all: called, it returns when it is on disk;
in the event loop `await journal.receive.soon(…)` does the same without holding up anybody. Tensors never enter: they
lie in checkpoints and in the spool, and the journal only names them.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pfl_common.spec.messages import Receipt, Scores
from pfl_common.spec.run import ClientId
from pfl_server.decisions.sampling import Draw
from pfl_server.settings import Durability
from pfl_server.store.journal_attempts import read_attempts, write_candidates
from pfl_server.store.journal_course import NOTE, read_courses, write_course
from pfl_server.store.journal_file import connect, write_ahead
from pfl_server.store.journal_thread import Page, Scribe, entry
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.course import Course

CHANGES = "select numbers from change order by round"
SETTLE = """
update attempt set status = ?, counted = ?, losses = ?, reason = ? where round = ? and attempt = ?
"""
ATTEMPT = """
select attempt, cohort, drops, status, at from attempt left join opening using (round, attempt)
where round = ? and ? in (attempt, 0) order by attempt desc limit 1
"""
REGISTER = (
    "insert into site (name, description, late) values (?, ?, ?)"
    " on conflict (name) do update set description = excluded.description"
)
COMMITTED = "select round, attempt from attempt where status = 'committed' order by round"
REPORTS = "select scores from report where key = ? order by site"


@dataclass(frozen=True)
class Attempt:
    """One attempt at a round: its cohort and its end."""

    round: int
    attempt: int
    draw: Draw
    status: str
    opened: float | None = None
    """When it was opened for the first time (Unix time), however often the coordinator was restarted since."""


class Journal:
    """The journal of one run."""

    def __init__(self, file: Path, *, durability: Durability = "power") -> None:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.durability = durability
        db = connect(file, durability)
        self._committed = dict(db.execute(COMMITTED).fetchall())
        self._candidates: Sequence[ClientId] | None = None
        self._read: dict[str, Scores] = {}
        """Reports of this life by their text, so that it need not be read again; until the next sum."""
        self.scribe = Scribe(db, prompt=durability == "process", prepare=write_ahead)
        self._closing = weakref.finalize(self, self.scribe.close)

    def close(self) -> None:
        """Write what was asked so far, then no more."""
        self._closing()

    def flush(self) -> None:
        """Return when all that was asked so far is on disk; at once if it is closed."""
        if self._closing.alive:
            self.status()

    @entry
    def begin(self, page: Page, run: str, spec: str) -> None:
        """The specification is frozen: from here on the run can be resumed."""
        page.write("insert into run (id, spec, status, words) values (?, ?, 'running', '')", run, spec)

    @entry
    def spec(self, page: Page) -> str | None:
        """The frozen specification, if there is one."""
        found = page.rows("select spec from run")
        return found[0][0] if found else None

    @entry
    def status(self, page: Page) -> tuple[str, str]:
        """running, finished, stopped or failed, and why."""
        found = page.rows("select status, words from run")
        return (found[0][0], found[0][1]) if found else ("gathering", "")

    @entry
    def end(self, page: Page, status: str, words: str = "") -> None:
        """The run is over."""
        page.write("update run set status = ?, words = ?", status, words)

    @entry
    def register(self, page: Page, site: ClientId, description: str, *, late: bool) -> None:
        """A site takes part from now on; registering again only renews its description."""
        page.write(REGISTER, site, description, int(late))
        page.write("delete from goodbye where site = ?", site)
        page.write("delete from removal where site = ?", site)

    @entry
    def remove(self, page: Page, site: ClientId, at: float) -> None:
        """The operator takes a site out; it counts until the site registers again."""
        page.write("insert or replace into removal (site, at) values (?, ?)", site, at)

    @entry
    def removals(self, page: Page) -> dict[ClientId, float]:
        """Sites that the operator took out, and when (Unix times)."""
        return dict(page.rows("select site, at from removal order by site"))

    @entry
    def leave(self, page: Page, site: ClientId, at: float) -> None:
        """A site says goodbye; it counts until the site registers again."""
        page.write("insert or replace into goodbye (site, at) values (?, ?)", site, at)

    @entry
    def stay(self, page: Page, site: ClientId) -> None:
        """A site is heard after its goodbye."""
        page.write("delete from goodbye where site = ?", site)

    @entry
    def goodbyes(self, page: Page) -> dict[ClientId, float]:
        """Sites that have left, and when (Unix times)."""
        return dict(page.rows("select site, at from goodbye order by site"))

    @entry
    def sites(self, page: Page) -> dict[ClientId, str]:
        """All registered sites with their descriptions, by name."""
        return dict(page.rows("select name, description from site order by name"))

    @entry
    def declared(self, page: Page, site: ClientId) -> int | None:
        """The training samples that a site declared when it joined; None if it told none."""
        found = page.rows("select description from site where name = ?", site)
        said = json.loads(found[0][0]).get("samples") if found else None
        return said if isinstance(said, int) else None

    @entry
    def open_attempt(
        self,
        page: Page,
        number: int,
        candidates: Sequence[ClientId],
        draw: Draw,
        *,
        at: float | None = None,
    ) -> int:
        """Open a round, or find the attempt that a restarted coordinator had open; gives its number."""
        found = page.rows(
            "select attempt, status from attempt where round = ? order by attempt desc limit 1", number
        )
        last, status = found[0] if found else (0, "")
        if status == "open":
            return int(last)
        page.write(
            "insert into attempt (round, attempt, candidates, cohort, drops, status)"
            " values (?, ?, '[]', ?, ?, 'open')",
            number,
            int(last) + 1,
            *(json.dumps(sorted(part)) for part in (draw.cohort, draw.drops)),
        )
        # Ten thousand names in each round's row would be most of a long run's journal.
        if candidates is not self._candidates:
            write_candidates(page, number, int(last) + 1, candidates)
            page.afterwards(partial(setattr, self, "_candidates", candidates))
        if at is not None:
            page.write("insert into opening (round, attempt, at) values (?, ?, ?)", number, int(last) + 1, at)
        return int(last) + 1

    @entry
    def attempt(self, page: Page, number: int, attempt: int = 0) -> Attempt:
        """An attempt as it was opened; without its number the newest of the round."""
        ((attempt, cohort, drops, status, at),) = page.rows(ATTEMPT, number, attempt)
        draw = Draw(tuple(json.loads(cohort)), frozenset(json.loads(drops)))
        return Attempt(number, attempt, draw, status, at)

    @entry
    def commit(  # noqa: PLR0913  # all that is known of a closed round, in one transaction
        self,
        page: Page,
        number: int,
        attempt: int,
        counted: Sequence[ClientId],
        losses: Mapping[ClientId, str],
        *,
        course: Course | None = None,
        changes: Mapping[ClientId, float] | None = None,
    ) -> None:
        """The round is closed and its checkpoint is on disk. `changes`: how far the counted updates went."""
        words = json.dumps(list(counted)), json.dumps(dict(losses), sort_keys=True)
        page.write(SETTLE, "committed", *words, "", number, attempt)
        if changes:
            text = json.dumps(dict(changes), sort_keys=True)
            page.write("insert or replace into change (round, numbers) values (?, ?)", number, text)
        write_course(page, course)
        page.afterwards(partial(self._remember, number, attempt))

    @entry
    def abandon(  # noqa: PLR0913  # all that is known of an attempt given up, in one transaction
        self,
        page: Page,
        number: int,
        attempt: int,
        losses: Mapping[ClientId, str],
        reason: str,
        *,
        course: Course | None = None,
        back_to: int | None = None,
    ) -> None:
        """The attempt is given up; none of its updates counts. `back_to`: the round after which the state stands that
        the next attempt begins from, where that is not the last one.
        """
        words = "[]", json.dumps(dict(losses), sort_keys=True)
        page.write(SETTLE, "abandoned", *words, reason, number, attempt)
        if back_to is not None:
            _fall_back(page, number, back_to)
        write_course(page, course)

    @entry
    def fall_back(self, page: Page, number: int, back_to: int) -> None:
        """This round begins from the state after that earlier one, as in the run that is replayed."""
        _fall_back(page, number, back_to)

    @entry
    def fallbacks(self, page: Page) -> dict[int, int]:
        """Rounds that did not begin from the state after the one before, and after which round theirs stood."""
        return dict(page.rows("select round, back_to from fallback order by round"))

    @entry
    def changes(self, page: Page) -> list[dict[ClientId, float]]:
        """How far the counted updates went in each round, the oldest first."""
        return [json.loads(text) for (text,) in page.rows(CHANGES)]

    @entry
    def counted(self, page: Page, number: int, attempt: int) -> tuple[ClientId, ...]:
        """Whose updates a committed attempt counted, in site order."""
        rows = page.rows("select counted from attempt where round = ? and attempt = ?", number, attempt)
        return tuple(json.loads(rows[0][0]))

    def committed(self) -> Mapping[int, int]:
        """Committed rounds with the attempt that counted, from memory: it is asked for with every task handed out."""
        return self._committed

    @entry
    def receive(  # noqa: PLR0913  # all that is known of an update, in one promise
        self, page: Page, receipt: Receipt, number: int, attempt: int, spooled: str, *, signature: str = ""
    ) -> None:
        """From here on the coordinator answers for this update."""
        page.write(
            "insert into receipt (round, attempt, site, key, digest, spooled, signature)"
            " values (?, ?, ?, ?, ?, ?, ?)",
            number,
            attempt,
            receipt.site,
            receipt.key,
            receipt.digest,
            spooled,
            signature,
        )

    @entry
    def forget(self, page: Page, site: ClientId, number: int, attempt: int) -> None:
        """The update of a receipt is gone or torn (a power loss): the site will be asked for it again."""
        page.write("delete from receipt where site = ? and round = ? and attempt = ?", site, number, attempt)

    @entry
    def receipt(self, page: Page, site: ClientId, number: int, attempt: int) -> tuple[str, str, str] | None:
        """A site's update, if it is here: its digest, its name in the spool, the signature under its receipt."""
        rows = page.rows(
            "select digest, spooled, signature from receipt where site = ? and round = ? and attempt = ?",
            site,
            number,
            attempt,
        )
        return rows[0] if rows else None

    @entry
    def receipts(self, page: Page, number: int, attempt: int) -> dict[ClientId, tuple[str, str]]:
        """Sites whose update is here, with its digest and its name in the spool."""
        rows = page.rows(
            "select site, digest, spooled from receipt where round = ? and attempt = ? order by site",
            number,
            attempt,
        )
        return {site: (digest, spooled) for site, digest, spooled in rows}

    @entry
    def report(self, page: Page, key: str, site: ClientId, scores: Scores) -> None:
        """One site's evaluation; kept only until it has been summed."""
        text = json.dumps(scores)
        self._read[text] = scores
        page.write("insert or replace into report (key, site, scores) values (?, ?, ?)", key, site, text)

    @entry
    def reports(self, page: Page, *keys: str) -> list[Scores]:
        """The evaluations of some tasks, task after task, each in site order."""
        texts = [text for key in keys for (text,) in page.rows(REPORTS, key)]
        return [self._read.get(text) or json.loads(text) for text in texts]

    @entry
    def hand_out(self, page: Page, key: str, site: ClientId, since: int) -> None:
        """A site is given a task, to be begun from what it had after its own committed round `since`."""
        page.write("insert or replace into handed (key, site, since) values (?, ?, ?)", key, site, since)

    @entry
    def handed_to(self, page: Page, key: str) -> list[ClientId]:
        """Sites that were given a task."""
        return [site for (site,) in page.rows("select site from handed where key = ? order by site", key)]

    @entry
    def handed(self, page: Page) -> dict[str, dict[ClientId, int]]:
        """By task and site, after which committed round of its own a site began a task; kept for ever, for replay."""
        found: dict[str, dict[ClientId, int]] = {}
        for key, site, since in page.rows("select key, site, since from handed order by key, site"):
            found.setdefault(key, {})[site] = since
        return found

    @entry
    def sum_up(self, page: Page, keys: Sequence[str], scores: Scores) -> None:
        """Keep the sum of some tasks' evaluations under the first one's key and forget the single ones."""
        page.write("insert or replace into score (key, scores) values (?, ?)", keys[0], json.dumps(scores))
        for key in keys:
            page.write("delete from report where key = ?", key)
        self._read.clear()

    @entry
    def is_summed(self, page: Page, key: str) -> bool:
        """Whether a task's evaluations have been summed."""
        return bool(page.rows("select 1 from score where key = ?", key))

    @entry
    def sum_of(self, page: Page, key: str) -> Scores:
        """The summed evaluations of one task; empty where nothing was measured."""
        rows = page.rows("select scores from score where key = ?", key)
        found: Scores = json.loads(rows[0][0]) if rows else {}
        return found

    @entry
    def scores(self, page: Page) -> dict[str, Scores]:
        """All summed evaluations, by task."""
        return {key: json.loads(row) for key, row in page.rows("select key, scores from score order by key")}

    @entry
    def rounds(self, page: Page) -> list[dict[str, object]]:
        """Every attempt as plain values, for status, report and replay."""
        return read_attempts(page)

    @entry
    def course(self, page: Page) -> list[Course]:
        """How each attempt went that was ended, oldest first; runs begun by an older release have none of it."""
        return read_courses(page)

    @entry
    def note(self, page: Page, reading: Reading, *, closed: bool = False) -> None:
        """Store the counters, from which a restarted coordinator continues; `closed` also makes them the start of the
        first attempt's count.
        """
        for moment in ("now", "closed") if closed else ("now",):
            page.write(NOTE, moment, reading.to_json())

    @entry
    def readings(self, page: Page) -> dict[str, Reading]:
        """The counters stored last (`now`) and at the end of the last attempt (`closed`); none of older releases."""
        found = page.rows("select moment, numbers from reading")
        return {moment: Reading.from_json(numbers) for moment, numbers in found}

    def _remember(self, number: int, attempt: int) -> None:
        # Another mapping and not the same one with more in it: others look into the old one at this very moment.
        self._committed = {**self._committed, number: attempt}


def _fall_back(page: Page, number: int, back_to: int) -> None:
    page.write("insert or replace into fallback (round, back_to) values (?, ?)", number, back_to)
