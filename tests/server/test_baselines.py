"""A run is compared with finished runs of plain methods over the same kind of data, and with nothing else."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.run import Model, RunSpec
from pfl_common.scores import vector
from pfl_server.baselines import find_baselines
from pfl_server.journal import Journal
from tests.server.federation import CLASSES, SHAPE

MODEL = Model("tiny", SHAPE, CLASSES)
SPEC = RunSpec("run-9", "dualfed", {}, MODEL, 2, 5, ("a", "b"))


def finish(runs: Path, spec: RunSpec, *, correct: int, moment: int = 100, status: str = "finished") -> None:
    """Another run of the same folder, with its accuracy in tenths and when it was last written."""
    file = runs / spec.id / "journal.sqlite"
    journal = Journal(file, durability="process")
    journal.begin(spec.id, spec.to_json())
    journal.sum_up(["000002-1-train"], {"pre/test/combined": vector(1, 10, 0.5)})
    journal.sum_up(["000002-1-finish"], {"pre/test/combined": vector(correct, 10, 0.5)})
    journal.end(status)
    journal.close()
    os.utime(file, (moment, moment))


def test_the_newest_finished_run_of_each_plain_method(tmp_path: Path) -> None:
    """By when it ended, with its accuracy at its end; the run itself and other methods are no baselines."""
    other = replace(SPEC, id="run-1", method="local")
    finish(tmp_path, other, correct=3, moment=200)
    finish(tmp_path, replace(other, id="run-2"), correct=9, moment=100)
    finish(tmp_path, replace(other, id="run-3", method="fedavg"), correct=4)
    finish(tmp_path, replace(other, id="run-4", method="ditto"), correct=5)
    finish(tmp_path, replace(SPEC, method="local"), correct=6, moment=300)
    assert {"local": 0.3, "fedavg": 0.4} == find_baselines(tmp_path, SPEC)


@pytest.mark.parametrize(
    "change",
    [
        {"model": Model("tiny", (3,), CLASSES)},
        {"model": Model("tiny", SHAPE, (*CLASSES, "cow"))},
        {"roster": ("a", "b", "c")},
    ],
    ids=["shape", "classes", "number of sites"],
)
def test_what_cannot_be_compared(tmp_path: Path, change: dict[str, object]) -> None:
    """Other data or another number of sites make another task."""
    finish(tmp_path, replace(SPEC, id="run-1", method="local", **change), correct=3)
    assert {} == find_baselines(tmp_path, SPEC)


def test_a_run_that_did_not_finish_or_cannot_be_read(tmp_path: Path) -> None:
    """Neither is a baseline, and neither keeps this run from being played."""
    finish(tmp_path, replace(SPEC, id="run-1", method="local"), correct=3, status="stopped")
    (tmp_path / "run-2").mkdir()
    (tmp_path / "run-2" / "journal.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "run-3").mkdir()
    assert {} == find_baselines(tmp_path, SPEC)


@pytest.mark.parametrize("row", ["[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]", "null", "[[], 1, 1, 1, 1, 1]", '"abcdef"'])
def test_a_damaged_row_of_another_run(tmp_path: Path, row: str) -> None:
    """Whatever stands where its accuracy was: this run is played all the same."""
    finish(tmp_path, replace(SPEC, id="run-1", method="local"), correct=3)
    with closing(sqlite3.connect(tmp_path / "run-1" / "journal.sqlite")) as db, db:
        db.execute("update score set scores = ?", (f'{{"pre/test/combined": {row}}}',))
    assert {} == find_baselines(tmp_path, SPEC)
