"""What a run can be compared with: finished runs of plain methods in the same state folder, over data of one shape, and
those the operator names.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import structlog

from pfl_common import scores
from pfl_common.errors import SettingError, nearest
from pfl_common.run import RunSpec
from pfl_server.curve import COMBINED

METHODS = ("local", "fedavg")
_LAST_SCORES = "select scores from score where key like '%-finish'"

log = structlog.get_logger("pfl.baselines")


def look_up(state: Path, words: str) -> tuple[Path, ...]:
    """The folders of the runs that the operator has named (a,b), each by its name here or as a folder anywhere."""
    return tuple(_look_up(state / "runs", word) for word in map(str.strip, words.split(",")) if word)


def find_baselines(runs: Path, spec: RunSpec, named: Sequence[Path] = ()) -> dict[str, float]:
    """Mean accuracy at the end of the newest finished run of each plain method; nothing of one there is none of. A run
    that was named takes the place of all others of its method, which may be any.
    """
    found: dict[str, tuple[float, float]] = {}
    for file in runs.glob("*/journal.sqlite"):
        if file.parent.name == spec.id:
            continue
        method, accuracy, ended = _read(file, spec)
        if method in METHODS:
            found[method] = max(found.get(method, (0.0, 0.0)), (ended, accuracy))
    baselines = {method: accuracy for method, (_, accuracy) in found.items()}
    for folder in named:
        method, accuracy, _ = _read(folder / "journal.sqlite", spec)
        if method:
            baselines[method] = accuracy
        else:
            log.warning("no gain over this run: other classes or sites", run=folder.name, this=spec.id)
    return baselines


def _look_up(runs: Path, word: str) -> Path:
    places = (runs / word, Path(word))
    folder = next((place for place in places if (place / "journal.sqlite").is_file()), None)
    if folder is None or not _has_finished(folder / "journal.sqlite"):
        there = sorted(file.parent.name for file in runs.glob("*/journal.sqlite") if _has_finished(file))
        raise SettingError(
            f"--baseline {word}: {'no run is there' if folder is None else 'that run has not finished'}",
            expected=nearest(word, there) if there else "a finished run here, or a run's own folder",
            advice="name one, or leave --baseline out: the newest of local and fedavg are found by themselves",
        )
    return folder


def _has_finished(file: Path) -> bool:
    try:
        with closing(_open(file)) as db:
            return bool(db.execute("select 1 from run where status = 'finished'").fetchone())
    except sqlite3.Error:
        return False


def _read(file: Path, spec: RunSpec) -> tuple[str, float, float]:
    """The method of a run that can be compared with, its accuracy at its end, and when that was (Unix time)."""
    try:
        ended = file.stat().st_mtime
        with closing(_open(file)) as db:
            rows = db.execute("select spec from run where status = 'finished'").fetchall()
            other = RunSpec.from_json(rows[0][0]) if rows else None
            if other is None or not _comparable(other, spec):
                return "", 0.0, 0.0
            ((text,),) = db.execute(_LAST_SCORES).fetchall()
        # A finished model is measured once, as it will predict.
        return other.method, scores.summary(json.loads(text)[f"pre/{COMBINED}"])["acc_macro"], ended
    except (OSError, sqlite3.Error, ValueError, LookupError, ArithmeticError, TypeError) as error:
        # Another run's folder may be damaged, or of another release: no reason not to train this one.
        log.info("a run cannot be compared with", run=file.parent.name, why=type(error).__name__)
        return "", 0.0, 0.0


def _open(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)


def _comparable(other: RunSpec, spec: RunSpec) -> bool:
    same = (other.model.shape, other.model.classes, len(other.roster))
    return same == (spec.model.shape, spec.model.classes, len(spec.roster))
