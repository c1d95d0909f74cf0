"""Reads a run's records from a copy of the coordinator's journal, so that the run goes on undisturbed."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from pfl_common.errors import StateError
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import ClientId, RunSpec
from pfl_server.store.comparable import Subject
from pfl_server.store.journal import Journal
from pfl_server.store.journal_migration import check_version
from pfl_server.telemetry.course import Course

BUSY_SECONDS = 30.0
"""How long to wait for a coordinator that is writing its journal."""
WAL_HEADER = 32
"""Bytes at the beginning of what SQLite has written ahead."""


@dataclass(frozen=True)
class Tried:
    """One attempt at a round and its status: open, committed or abandoned."""

    round: int
    attempt: int
    status: str
    cohort: tuple[ClientId, ...]
    drops: tuple[ClientId, ...]
    counted: tuple[ClientId, ...]
    losses: Mapping[ClientId, str]
    reason: str
    received: int
    course: Course | None


@dataclass(frozen=True)
class Record:
    """The content of one run's journal."""

    folder: Path
    spec: RunSpec
    status: str
    words: str
    sites: tuple[ClientId, ...]
    samples: Mapping[ClientId, int | None]
    """Each site's training samples, as it said them."""
    fingerprints: Mapping[ClientId, str]
    """Of each site's data, as it said them; empty of those that an older release registered."""
    attempts: tuple[Tried, ...]
    scores: Mapping[str, Scores]
    handed: Mapping[str, Mapping[ClientId, int]]
    """By task and site, after which committed round of its own a site began it."""

    @property
    def committed(self) -> tuple[Tried, ...]:
        """The attempts that count, one a round."""
        return tuple(tried for tried in self.attempts if tried.status == "committed")

    @property
    def ended(self) -> float:
        """When the last attempt of which this is known ended; 0 if of none."""
        return max((tried.course.ended for tried in self.attempts if tried.course), default=0.0)


def subject_of(record: Record) -> Subject:
    """A run as far as it can be compared with another."""
    # One that ended early has words on why.
    over = record.status == "finished" and not record.words
    return Subject(record.spec, record.samples, record.spec.rounds if over else len(record.committed))


def read_record(run: Path) -> Record:
    """Read the journal of a run, also of one that is going on; nothing in its folder is changed."""
    if not (run / "journal.sqlite").is_file():
        raise StateError(
            f"{run} is not the folder of a run",
            expected="a folder with a journal.sqlite, as a coordinator keeps it",
            advice="name the one below the coordinator's state folder: pfl-state/runs/RUN",
        )
    with tempfile.TemporaryDirectory(prefix="pfl-report-") as scratch:
        try:
            return _read_copy(run, copy_journal(run / "journal.sqlite", Path(scratch)))
        except (sqlite3.Error, ValidationError, ValueError, KeyError) as error:
            raise StateError(
                f"the journal of {run} cannot be read: {error}",
                expected="the journal of a run, written by this release or an earlier one",
                advice="take the folder from a backup",
            ) from None


def copy_journal(file: Path, into: Path) -> Path:
    """A copy as of one commit; nothing beside the journal is made or changed."""
    copy = into / "recorded.sqlite"
    while not _copy_written_ahead(file, copy) and not _copy_closed(file, copy):
        pass
    with closing(sqlite3.connect(copy)) as db:
        # Here, or who opens the copy would name that.
        check_version(db, file)
    return copy


def _copy_written_ahead(file: Path, copy: Path) -> bool:
    """Copy a journal that is open, or was when its coordinator was killed: what was committed last lies beside it. What
    goes from there into the journal meanwhile is in both, as long as the file beside it is not begun anew.
    """
    beside = _beside(file, "-wal")
    try:
        begun = _read_beginning(beside)
        shutil.copyfile(file, copy)
        shutil.copyfile(beside, _beside(copy, "-wal"))
        return begun == _read_beginning(beside)
    except FileNotFoundError:
        return False


def _copy_closed(file: Path, copy: Path) -> bool:
    """Copy a journal that nobody has open, or one of a disk where nothing is written ahead, through a connection that
    cannot write: SQLite makes a writer wait meanwhile.
    """
    if _beside(file, "-wal").exists():
        return False
    _beside(copy, "-wal").unlink(missing_ok=True)
    copy.unlink(missing_ok=True)
    with closing(
        sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    ) as source:
        try:
            with closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
                raise
            # A killed coordinator left a commit half done and nobody is writing: undone in the copy, not in the run.
            shutil.copyfile(file, copy)
            shutil.copyfile(_beside(file, "-journal"), _beside(copy, "-journal"))
    return True


def _beside(file: Path, end: str) -> Path:
    return file.with_name(file.name + end)


def _read_beginning(beside: Path) -> bytes:
    """By what SQLite knows commits of the file beside a journal: another each time that it is begun anew."""
    with beside.open("rb") as content:
        return content.read(WAL_HEADER)


def _read_copy(run: Path, copy: Path) -> Record:
    # Opened as a journal: of an older version the copy is migrated, and what that did not have is there, empty.
    journal = Journal(copy, durability="process")
    try:
        text = journal.spec()
        if text is None:
            raise StateError(f"the run in {run} is not begun yet", expected="one with a specification")
        courses = {(course.round, course.attempt): course for course in journal.course()}
        status, words = journal.status()
        described = {site: json.loads(text) for site, text in journal.sites().items()}
        return Record(
            run,
            RunSpec.from_json(text),
            status,
            words,
            tuple(described),
            {site: one.get("samples") for site, one in described.items()},
            {site: one.get("data", "") for site, one in described.items()},
            tuple(_tried(row, journal, courses) for row in journal.rounds()),
            journal.scores(),
            journal.handed(),
        )
    finally:
        journal.close()


def _tried(row: Mapping[str, object], journal: Journal, courses: Mapping[tuple[int, int], Course]) -> Tried:
    place = cast(int, row["round"]), cast(int, row["attempt"])
    cohort, drops, counted = (tuple(cast(list[str], row[name])) for name in ("cohort", "drops", "counted"))
    return Tried(
        *place,
        status=str(row["status"]),
        cohort=cohort,
        drops=drops,
        counted=counted,
        losses=cast(dict[str, str], row["losses"]),
        reason=str(row["reason"]),
        received=len(journal.receipts(*place)),
        course=courses.get(place),
    )
