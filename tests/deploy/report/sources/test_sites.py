"""A site's own numbers are read from its history: which curve stands for the method, and where it ends."""

from __future__ import annotations

import json
from pathlib import Path

from pfl_deploy.report.sources.sites import History, read_numbers


def write(folder: Path, *lines: tuple[str, dict[str, float]]) -> History:
    """What is read of these tasks and accuracies."""
    entries = [
        {"task": task, "scores": {name: {"accuracy": value} for name, value in scores.items()}, "metrics": {}}
        for task, scores in lines
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return read_numbers(folder)


def test_a_method_is_told_by_its_measurements_after_training_where_there_are_any(tmp_path: Path) -> None:
    """Both measured, the same number of rounds would have two values; other parts and other heads are not in it."""
    history = write(
        tmp_path,
        ("000001-1-train", {"pre/test/combined": 0.1, "post/test/combined": 0.3, "post/test/global": 0.9}),
        ("000002-1-train", {"pre/test/combined": 0.2, "post/test/combined": 0.4}),
    )
    assert {1: 0.3, 2: 0.4} == history.predicting("test")
    assert {} == history.predicting("shifted")


def test_the_finished_model_stands_at_the_end(tmp_path: Path) -> None:
    """It continues a curve of measurements before training; in one of those after training it has the last word."""
    history = write(
        tmp_path,
        ("000001-1-train", {"pre/test/combined": 0.1, "post/shifted/combined": 0.5}),
        ("000002-1-train", {"pre/test/combined": 0.2, "post/shifted/combined": 0.6}),
        ("000002-1-finish", {"pre/test/combined": 0.3, "pre/shifted/combined": 0.7}),
    )
    assert {0: 0.1, 1: 0.2, 2: 0.3} == history.predicting("test")
    assert {1: 0.5, 2: 0.7} == history.predicting("shifted")


def test_a_site_that_only_measures_measures_the_same_state(tmp_path: Path) -> None:
    """It has the download of those that train in that round: the state after the round before."""
    history = write(
        tmp_path,
        ("000001-1-train", {"pre/test/combined": 0.1}),
        ("000002-1-evaluate", {"pre/test/combined": 0.2}),
    )
    assert {0: 0.1, 1: 0.2} == history.predicting("test")
