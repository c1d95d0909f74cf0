"""The serving model: a whole one at each instant."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from pfl_client.run_folder.serving_model import ServingModel
from tests.client.support.file_steps import Crash, break_after


def test_a_serving_model_keeps_the_one_before(tmp_path: Path) -> None:
    """The current one and one previous; a crash at any operation leaves a whole model in service."""
    for steps in range(20):
        model = ServingModel(tmp_path / str(steps))
        for words in ("one", "two"):
            model.draft.write_text(words)
            model.commit()
        assert ("two", "one") == (model.current.read_text(), model.previous.read_text())
        model.draft.write_text("three")
        with pytest.MonkeyPatch.context() as patch:
            asked = break_after(patch, steps, Crash())
            with suppress(Crash):
                model.commit()
        pair = (model.current.read_text(), model.previous.read_text())
        assert pair in {("two", "one"), ("two", "two"), ("three", "two")}
        if asked() <= steps:
            assert ("three", "two") == pair
            break
    assert steps == 5


def test_the_best_model_comes_into_service_with_the_last(tmp_path: Path) -> None:
    """A crash at any operation leaves a whole one; the task is done again and both are there."""
    for steps in range(20):
        model = ServingModel(tmp_path / str(steps))
        model.best.write_text("old best")
        model.draft.write_text("last")
        model.best_draft.write_text("best")
        with pytest.MonkeyPatch.context() as patch:
            asked = break_after(patch, steps, Crash())
            with suppress(Crash):
                model.commit(best=True)
        assert model.best.read_text() in {"old best", "best"}
        if asked() <= steps:
            assert ("last", "best") == (model.current.read_text(), model.best.read_text())
            break
    assert steps == 5
