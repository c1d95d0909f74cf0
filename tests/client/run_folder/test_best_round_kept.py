"""The best round's model in the middle of a run: one pointer, and a crash at any instant."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from pfl_client.run_folder.best_round_kept import BestRound
from pfl_client.trainer_process.api import Measured
from pfl_common.errors import StateError
from pfl_common.spec.run import Kind, Task
from tests.client.support.file_steps import Crash, break_after


def put(best: BestRound, number: int, accuracy: float, *, since: int, after: int) -> None:
    """A task of this round measured a better model, and it is committed as the trainer and the daemon do together."""
    best.draft.write_text(f"after {after}")
    best.commit(Task(Kind.TRAIN, number, 9, since=since), Measured(after, accuracy, 0.5, 12))


def read(best: BestRound, since: int) -> str | None:
    """The best model for a task that begins from this round's state."""
    file = best.so_far(since).file
    return None if file is None else file.read_text()


def test_without_a_measured_round_there_is_none(tmp_path: Path) -> None:
    """And a task that wrote none changes nothing."""
    best = BestRound(tmp_path / "best")
    best.commit(Task(Kind.TRAIN, 1, 9), None)
    assert (None, None) == (best.so_far(0).measured, read(best, 5))
    assert [] == list((tmp_path / "best").iterdir())


def test_a_better_one_takes_its_place(tmp_path: Path) -> None:
    """The next daemon finds it with its score; the file before is gone, and so is what was only begun."""
    best = BestRound(tmp_path)
    put(best, 2, 0.5, since=1, after=1)
    put(best, 5, 0.7, since=2, after=4)
    best.draft.write_text("begun")
    again = BestRound(tmp_path)
    assert ("after 4", 0.7) == (read(again, 5), again.so_far(5).measured.accuracy)
    assert 2 == len(list(tmp_path.iterdir()))


def test_what_an_abandoned_attempt_measured_after_training_is_taken_back(tmp_path: Path) -> None:
    """Until the round is committed the one before stays."""
    best = BestRound(tmp_path)
    put(best, 3, 0.5, since=0, after=3)
    put(best, 4, 0.9, since=3, after=4)
    assert ("after 3", "after 4") == (read(best, 3), read(best, 4))
    put(best, 5, 0.6, since=3, after=5)
    assert ("after 3", "after 5") == (read(best, 3), read(best, 5))
    put(best, 6, 0.7, since=5, after=6)
    assert ("after 5", "after 6") == (read(best, 5), read(best, 6))


def test_what_was_measured_before_training_stays(tmp_path: Path) -> None:
    """It is the model after a committed round, whatever becomes of the round under way."""
    best = BestRound(tmp_path)
    put(best, 4, 0.9, since=2, after=3)
    assert "after 3" == read(BestRound(tmp_path), 2)


def test_a_crash_at_any_operation(tmp_path: Path) -> None:
    """The old one or the new one is in force, whole; done again, the task leaves the new one."""
    for steps in range(20):
        folder = tmp_path / str(steps)
        best = BestRound(folder)
        put(best, 2, 0.5, since=1, after=1)
        with pytest.MonkeyPatch.context() as patch:
            asked = break_after(patch, steps, Crash())
            with suppress(Crash):
                put(best, 5, 0.7, since=2, after=4)
        assert read(BestRound(folder), 2) in {"after 1", "after 4"}
        again = BestRound(folder)
        if read(again, 2) == "after 1":
            put(again, 5, 0.7, since=2, after=4)
        assert ("after 4", 2) == (read(again, 5), len(list(folder.iterdir())))
        if asked() <= steps:
            break
    assert steps == 7


def test_a_model_that_is_gone_is_forgotten_and_a_damaged_pointer_is_said(tmp_path: Path) -> None:
    """The last model is there all the same."""
    best = BestRound(tmp_path)
    put(best, 2, 0.5, since=1, after=1)
    best.so_far(1).file.unlink()
    assert None is BestRound(tmp_path).so_far(1).measured
    (tmp_path / "best.json").write_text(json.dumps({"entries": 3}))
    with pytest.raises(StateError, match="cannot be read"):
        BestRound(tmp_path)
