"""What was measured is kept before it is reported, and no more is reported than the site's owner wants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pfl_client.run_folder.measurements import Measurements
from pfl_client.trainer_process.api import Done
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind
from tests.client.support.scripted_site import SCORES, TOLD, assign

DONE = Done(dict(SCORES), {"loss": 1.0})


@pytest.mark.parametrize(
    ("kind", "tells", "told"), [(Kind.TRAIN, True, TOLD), (Kind.TRAIN, False, {}), (Kind.EVALUATE, True, {})]
)
def test_what_is_reported_after_a_restart(tmp_path: Path, kind: Kind, tells: bool, told: Scores) -> None:
    """The scores, and what training said of itself only of a training and only if the site tells."""
    task = assign(kind)
    Measurements(tmp_path, tells=True).keep(task, DONE)
    assert SCORES | told == Measurements(tmp_path, tells=tells).report(task.key)


def test_only_of_the_last_task(tmp_path: Path) -> None:
    """The one before has been reported, or is given up; its line stays in the history."""
    kept = Measurements(tmp_path, tells=True)
    for number in (1, 2):
        kept.keep(assign(number=number), DONE)
    assert ({}, SCORES | TOLD) == (kept.report("000001-1-train"), kept.report("000002-1-train"))
    lines = [json.loads(text) for text in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert ["000001-1-train", "000002-1-train"] == [line["task"] for line in lines]
    assert [{"loss": 1.0}] * 2 == [line["metrics"] for line in lines]


@pytest.mark.parametrize("text", [None, "{", ""])
def test_nothing_to_report(tmp_path: Path, text: str | None) -> None:
    """A file that was not written, or not to its end, holds no scores."""
    if text is not None:
        (tmp_path / "scores.json").write_text(text)
    assert {} == Measurements(tmp_path, tells=True).report("000001-1-train")
