"""What a run can be compared with: finished runs of plain methods in the same state folder, over data of one shape."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import structlog

from pfl_common import scores
from pfl_common.run import RunSpec
from pfl_server.curve import COMBINED

METHODS = ("local", "fedavg")
_LAST_SCORES = "select scores from score where key like '%-finish'"

log = structlog.get_logger("pfl.baselines")


def find_baselines(runs: Path, spec: RunSpec) -> dict[str, float]:
    """Mean accuracy at the end of the newest finished run of each plain method; nothing of one there is none of."""
    found: dict[str, tuple[float, float]] = {}
    for file in runs.glob("*/journal.sqlite"):
        if file.parent.name == spec.id:
            continue
        try:
            ended = file.stat().st_mtime
            method, accuracy = _read(file, spec)
        except (OSError, sqlite3.Error, ValueError, LookupError, ArithmeticError, TypeError) as error:
            # Another run's folder may be damaged, or of another release: no reason not to train this one.
            log.info("a run cannot be compared with", run=file.parent.name, why=type(error).__name__)
            continue
        if method:
            found[method] = max(found.get(method, (0.0, 0.0)), (ended, accuracy))
    return {method: accuracy for method, (_, accuracy) in found.items()}


def _read(file: Path, spec: RunSpec) -> tuple[str, float]:
    """The method of a run that can be compared with and its accuracy at the end; nothing of any other."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute("select spec from run where status = 'finished'").fetchall()
        other = RunSpec.from_json(rows[0][0]) if rows else None
        if other is None or not _comparable(other, spec):
            return "", 0.0
        ((text,),) = db.execute(_LAST_SCORES).fetchall()
    # A finished model is measured once, as it will predict.
    return other.method, scores.summary(json.loads(text)[f"pre/{COMBINED}"])["acc_macro"]


def _comparable(other: RunSpec, spec: RunSpec) -> bool:
    same = (other.model.shape, other.model.classes, len(other.roster))
    return other.method in METHODS and same == (spec.model.shape, spec.model.classes, len(spec.roster))
