"""A run is compared with finished runs of plain methods over the same kind of data, and with nothing else."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pfl_common.errors import SettingError
from pfl_common.evaluation import vector
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Model, RunSpec
from pfl_server.store.baselines import find_baselines as find
from pfl_server.store.baselines import look_up
from pfl_server.store.journal import Journal
from tests.server.scenarios.test_numbers import read, run_to_the_end, value
from tests.server.support.federation import CLASSES, SHAPE

MODEL = Model("tiny", SHAPE, CLASSES)
SPEC = RunSpec("run-9", "dualfed", {}, MODEL, rounds=2, seed=5, roster=("a", "b"))


def find_baselines(runs: Path, spec: RunSpec, named: tuple[Path, ...] = ()) -> dict[str, float]:
    """Their accuracies alone."""
    return {method: one.accuracy for method, one in find(runs, spec, named).items()}


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
        {"model": replace(MODEL, backbone="other")},
        {"model": replace(MODEL, encoder_projector=True)},
        {"data": {"a": "11", "b": "33"}},
        {"settings": {"lr": 0.2}},
        {"settings": {"lr": 0.1, "momentum": 0.5}},
        {"rounds": 3},
        {"seed": 6},
        {"participation": Participation(0.5, 1.0)},
        {"quorum": 0.5},
        {"candidates": "present"},
        {"threads": 2},
    ],
    ids=lambda change: "-".join(change),
)
def test_what_cannot_be_compared(tmp_path: Path, change: dict[str, object]) -> None:
    """Nothing but the method and its own settings may differ; a run that is named is told with what does."""
    spec = replace(SPEC, data={"a": "11", "b": "22"}, settings={"lr": 0.1, "lambda": 3.0})
    settings = {"lr": 0.1, "beta": 2.0}
    other = replace(spec, id="run-1", method="local", settings=settings)
    finish(tmp_path / "runs", other, correct=4)
    assert {"local": 0.4} == find_baselines(tmp_path / "runs", spec)
    finish(tmp_path / "others", replace(other, **change), correct=3)
    assert {} == find_baselines(tmp_path / "others", spec)
    named = find(tmp_path / "runs", spec, (tmp_path / "others" / "run-1",))
    if (
        "roster" in change
        or change.get("model", MODEL).classes != CLASSES
        or change.get("model", MODEL).shape != SHAPE
    ):
        assert 0.4 == named["local"].accuracy, "of another task: said in the log"
    else:
        assert 0.3 == named["local"].accuracy
        assert not named["local"].differences.comparable


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


def test_a_run_that_was_named(tmp_path: Path) -> None:
    """It takes the place of the newest of its method, may be of any method, and may lie elsewhere."""
    here, other = tmp_path / "runs", replace(SPEC, id="run-1", method="local")
    finish(here, other, correct=3, moment=100)
    finish(here, replace(other, id="run-2"), correct=9, moment=200)
    finish(here, replace(other, id="run-3", method="fedavg"), correct=4)
    finish(tmp_path / "elsewhere", replace(other, id="run-4", method="ditto"), correct=5)
    named = look_up(tmp_path, f" run-1, {tmp_path / 'elsewhere' / 'run-4'},")
    assert (here / "run-1", tmp_path / "elsewhere" / "run-4") == named
    assert {"local": 0.3, "fedavg": 0.4, "ditto": 0.5} == find_baselines(here, SPEC, named)
    assert () == look_up(tmp_path, "")


def test_a_named_run_of_another_task(tmp_path: Path) -> None:
    """Only when the sites have come is it known that it cannot be compared with: it is said, and the run goes on."""
    finish(tmp_path / "runs", replace(SPEC, id="run-1", method="local", roster=("a", "b", "c")), correct=3)
    with capture_logs() as said:
        assert {} == find_baselines(tmp_path / "runs", SPEC, look_up(tmp_path, "run-1"))
    (line,) = said
    assert ("warning", "run-1", "sites a, b, there a, b, c") == (
        line["log_level"],
        line["run"],
        line["differs"],
    )


def test_a_named_run_whose_accuracy_is_lost(tmp_path: Path) -> None:
    """It is of the same classes and sites: nothing else is said of it."""
    finish(tmp_path / "runs", replace(SPEC, id="run-1", method="local"), correct=3)
    file = tmp_path / "runs" / "run-1" / "journal.sqlite"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("delete from score")
    with capture_logs() as said:
        assert {} == find_baselines(tmp_path / "none", SPEC, (file.parent,))
    (line,) = said
    assert ("warning", "run-1") == (line["log_level"], line["run"])
    assert "differs" not in line


@pytest.mark.parametrize(
    ("word", "seen", "expected"),
    [
        ("run-l", "--baseline run-l: no run is there", "run-1"),
        ("run-2", "--baseline run-2: that run has not finished", "run-1"),
    ],
)
def test_a_name_that_is_none(tmp_path: Path, word: str, seen: str, expected: str) -> None:
    """Said before any site is waited for, with what is there."""
    finish(tmp_path / "runs", replace(SPEC, id="run-1", method="local"), correct=3)
    finish(tmp_path / "runs", replace(SPEC, id="run-2", method="local"), correct=3, status="stopped")
    with pytest.raises(SettingError) as error:
        look_up(tmp_path, word)
    assert seen == error.value.seen
    assert expected in error.value.expected


async def test_it_is_told_in_numbers(tmp_path: Path) -> None:
    """A run played after two of `local`, with the first of them named: the gain is over that one."""
    host, view = await run_to_the_end(tmp_path, "local", rounds=1, fewest_reporters=1)
    first = host.books.spec.id
    had = view.watch.scores["test/combined"]["acc_macro"]
    await run_to_the_end(tmp_path, "local", new_run=True, rounds=4, set={"lr": 0.5})
    last, view = await run_to_the_end(tmp_path, "fedavg", new_run=True, baseline=first, fewest_reporters=1)
    words = [event.words for event in last.record.events.newest() if event.level == "warning"]
    assert ["rounds 2, there 1"] == [said.partition("not comparable: ")[2] for said in words if first in said]
    has = view.watch.scores["test/combined"]["acc_macro"]
    assert has - had == value(read(view), "pfl_gain_ratio", baseline="local")
