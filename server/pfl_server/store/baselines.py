"""Finds finished runs to compare a run with: plain methods under the same conditions in the same state folder, and runs
the operator names.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import structlog

from pfl_common import evaluation
from pfl_common.errors import SettingError, nearest
from pfl_common.spec.run import ClientId, RunSpec
from pfl_server.store.comparable import Differences, Subject, find_differences
from pfl_server.telemetry.history import COMBINED

METHODS = ("local", "fedavg")
_FINISHED = (
    "select spec, words, (select count(*) from attempt where status = 'committed') from run"
    " where status = 'finished'"
)
"""With words it ended before its last round."""
_LAST_SCORES = "select scores from score where key like '%-finish'"

log = structlog.get_logger("pfl.baselines")


def look_up(state: Path, words: str) -> tuple[Path, ...]:
    """The folders of the runs that the operator has named (a,b), each by its name here or as a folder anywhere."""
    return tuple(_look_up(state / "runs", word) for word in map(str.strip, words.split(",")) if word)


@dataclass(frozen=True)
class Finished:
    """A finished run, as far as a comparison needs it."""

    subject: Subject
    ended: float
    """Unix time."""
    accuracy: float | None
    """The mean over sites at its end; None where it cannot be read."""


@dataclass(frozen=True)
class Baseline:
    """The accuracy that a gain is measured against."""

    run: str
    accuracy: float
    differences: Differences


def find_baselines(runs: Path, spec: RunSpec, named: Sequence[Path] = ()) -> dict[str, Baseline]:
    """By method. By itself only the newest finished run of each plain method is taken that differs in nothing but its
    method; a run that was named takes the place of all others of its method, and what else differs is told with it.
    """
    own = Subject(spec, _samples(runs / spec.id / "journal.sqlite"), spec.rounds)
    found: dict[str, tuple[float, Baseline]] = {}
    for file in sorted(runs.glob("*/journal.sqlite")):
        other = None if file.parent.name == spec.id else read_finished(file)
        baseline = _compare(own, other) if other and other.subject.spec.method in METHODS else None
        if other is None or baseline is None or not baseline.differences.comparable:
            continue
        method = other.subject.spec.method
        if method not in found or other.ended > found[method][0]:
            found[method] = (other.ended, baseline)
    baselines = {method: baseline for method, (_, baseline) in found.items()}
    for folder in named:
        other = read_finished(folder / "journal.sqlite")
        baseline = _compare(own, other) if other else None
        if other is None or baseline is None:
            log.warning("no gain over this run: its accuracy cannot be read", run=folder.name, this=spec.id)
        elif _same_task(other.subject.spec, spec):
            baselines[other.subject.spec.method] = baseline
        else:
            words = "; ".join(baseline.differences.hindering)
            log.warning(
                "no gain over this run: other classes or sites", run=folder.name, this=spec.id, differs=words
            )
    return baselines


def read_finished(file: Path) -> Finished | None:
    """A finished run's journal; None of one that has not finished, or cannot be read."""
    try:
        with closing(_open(file)) as db:
            rows = db.execute(_FINISHED).fetchall()
        if not rows:
            return None
        spec = RunSpec.from_json(rows[0][0])
        subject = Subject(spec, _samples(file), rows[0][2] if rows[0][1] else spec.rounds)
        return Finished(subject, file.stat().st_mtime, _read_accuracy(file))
    except (OSError, sqlite3.Error, ValueError) as error:
        # Another run's folder may be damaged, or of another release: no reason not to train this one.
        log.info("a run cannot be compared with", run=file.parent.name, why=type(error).__name__)
        return None


def _compare(own: Subject, other: Finished) -> Baseline | None:
    if other.accuracy is None:
        return None
    return Baseline(other.subject.spec.id, other.accuracy, find_differences(own, other.subject))


def _look_up(runs: Path, word: str) -> Path:
    places = (runs / word, Path(word))
    folder = next((place for place in places if (place / "journal.sqlite").is_file()), None)
    if folder is None or not _has_finished(folder / "journal.sqlite"):
        there = sorted(file.parent.name for file in runs.glob("*/journal.sqlite") if _has_finished(file))
        raise SettingError(
            f"--baseline {word}: {'no run is there' if folder is None else 'that run has not finished'}",
            expected=nearest(word, there) if there else "a finished run here, or a run's own folder",
            advice="name one, or leave --baseline out: those of local and fedavg that differ in nothing else are found",
        )
    return folder


def _has_finished(file: Path) -> bool:
    try:
        with closing(_open(file)) as db:
            return bool(db.execute("select 1 from run where status = 'finished'").fetchone())
    except sqlite3.Error:
        return False


def _read_accuracy(file: Path) -> float | None:
    try:
        with closing(_open(file)) as db:
            ((text,),) = db.execute(_LAST_SCORES).fetchall()
        # A finished model is measured once, as it will predict.
        return evaluation.summary(json.loads(text)[f"pre/{COMBINED}"])["acc_macro"]
    except (OSError, sqlite3.Error, ValueError, LookupError, ArithmeticError, TypeError):
        return None


def _samples(file: Path) -> dict[ClientId, int | None]:
    """Each site's numbers of training samples; nothing if they cannot be read."""
    try:
        with closing(_open(file)) as db:
            rows = db.execute("select name, description from site").fetchall()
        return {site: json.loads(text).get("samples") for site, text in rows}
    except (OSError, sqlite3.Error, ValueError, AttributeError):
        return {}


def _open(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)


def _same_task(other: RunSpec, spec: RunSpec) -> bool:
    same = (other.model.shape, other.model.classes, len(other.roster))
    return same == (spec.model.shape, spec.model.classes, len(spec.roster))
