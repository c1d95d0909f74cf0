"""A site's own history, line by line, and how it is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pfl_common.errors import SettingError, StateError
from pfl_deploy.report.sources import sites
from pfl_deploy.report.sources.sites import History, find_histories, read_history, read_numbers, split_task


def line(task: str, scores: dict[str, float], **metrics: float) -> str:
    """One line of a history: accuracies of ten samples each."""
    told = {name: {"accuracy": value, "samples": 10} for name, value in scores.items()}
    return json.dumps({"task": task, "scores": told, "metrics": metrics}) + "\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the run r at site a; its specification is its folder's note."""
    monkeypatch.setattr(sites, "_spec_hash", lambda folder: (folder / "spec.json").read_text())
    folder = tmp_path / "fed" / "a" / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("h")
    return folder


def history(home: Path, text: str) -> History:
    """The one that was found."""
    (home / "history.jsonl").write_text(text)
    return find_histories([home.parents[2]], "r", "h")["a"]


def test_the_name_of_a_task() -> None:
    """Round and kind; what is no task's name, or more than one, is none."""
    assert [(12, "train"), (3, "finish"), None, None, None] == [
        split_task(name)
        for name in ("000012-2-train", "3-1-finish", "000012-2-join", "000012-train", "000012-2-train2")
    ]


def test_an_accuracy_by_the_rounds_before_it(home: Path) -> None:
    """A task measures before it trains what one round less has trained, and after it its own round."""
    found = history(home, line("000003-1-train", {"pre/test/combined": 0.5, "post/test/combined": 0.6}))
    assert {"pre/test/combined": {2: 0.5}, "post/test/combined": {3: 0.6}} == found.accuracy
    assert {"pre/test/combined": 10, "post/test/combined": 10} == found.samples


def test_a_task_done_twice_counts_once(home: Path) -> None:
    """With its last numbers; rounds are told in their order."""
    text = "".join(
        line(f"{task}-train", {"post/x/y": value})
        for task, value in (("2-1", 0.2), ("1-1", 0.1), ("2-2", 0.3))
    )
    assert [(1, 0.1), (2, 0.3)] == list(history(home, text).accuracy["post/x/y"].items())


def test_numbers_of_training_are_finite_and_of_training(home: Path) -> None:
    """A loss that is no number makes no curve; an evaluation has none to tell."""
    text = (
        line("1-1-train", {}, loss=2.0)
        + line("2-1-train", {}, loss=float("nan"))
        + line("3-1-evaluate", {}, loss=1.0)
    )
    assert {"loss": {1: 2.0}} == history(home, text).learning


def test_the_finished_model_continues_the_curve(home: Path) -> None:
    """It has two rounds behind it, and no measurement of those came before."""
    text = line("2-1-train", {"pre/test/combined": 0.5}) + line("2-1-finish", {"pre/test/combined": 0.7})
    found = history(home, text)
    assert {1: 0.5, 2: 0.7} == found.whole("pre/test/combined")
    assert (0.7, 2) == (found.final("pre/test/combined"), found.rounds)


def test_before_the_end_the_newest_counts() -> None:
    """And of what was never measured there is none."""
    found = History({"post/test/own": {1: 0.9, 4: 0.4}}, {}, {})
    assert (0.4, None) == (found.final("post/test/own"), found.final("post/test/combined"))


def test_a_line_that_is_being_written(home: Path) -> None:
    """It is left for the next time; a whole line that cannot be read is an error."""
    text = line("1-1-train", {"post/x/y": 0.1})
    (home / "history.jsonl").write_text(text + '{"task": "2-1')
    assert ["1-1-train"] == [entry["task"] for entry in read_history(home)]
    with pytest.raises(StateError, match=r"history\.jsonl cannot be read"):
        history(home, text + '{"task": "2-1-train"}\n')


def test_another_run_of_the_same_name_is_not_taken(home: Path) -> None:
    """The specification decides, not the name."""
    (home / "history.jsonl").write_text(line("1-1-train", {"post/x/y": 0.1}))
    assert {} == find_histories([home.parents[2]], "r", "other")
    with pytest.raises(SettingError, match="is not a folder"):
        find_histories([home / "nowhere"], "r", "h")


def test_a_place_that_was_named_by_mistake(home: Path) -> None:
    """What it holds instead is told; a place with one site of the run is right."""
    run: Any = SimpleNamespace(id="r", hash="h")
    sites.check_place(home.parents[2], [run], ["a"])
    with pytest.raises(SettingError, match="it holds no site's state at all"):
        sites.check_place(home, [run], ["a"])
    (home / "spec.json").write_text("other")
    with pytest.raises(SettingError, match="is of another run: r of a") as refused:
        sites.check_place(home.parents[2], [run], [str(number) for number in range(11)])
    assert refused.value.expected.endswith("0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and others")


def write_numbers(folder: Path, *lines: tuple[str, dict[str, float]]) -> History:
    """What is read of these tasks and accuracies."""
    entries = [
        {"task": task, "scores": {name: {"accuracy": value} for name, value in scores.items()}, "metrics": {}}
        for task, scores in lines
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return read_numbers(folder)


def test_a_method_is_told_by_its_measurements_after_training_where_there_are_any(tmp_path: Path) -> None:
    """Both measured, the same number of rounds would have two values; other parts and other heads are not in it."""
    history = write_numbers(
        tmp_path,
        ("000001-1-train", {"pre/test/combined": 0.1, "post/test/combined": 0.3, "post/test/global": 0.9}),
        ("000002-1-train", {"pre/test/combined": 0.2, "post/test/combined": 0.4}),
    )
    assert {1: 0.3, 2: 0.4} == history.predicting("test")
    assert {} == history.predicting("shifted")


def test_the_finished_model_stands_at_the_end(tmp_path: Path) -> None:
    """It continues a curve of measurements before training; in one of those after training it has the last word."""
    history = write_numbers(
        tmp_path,
        ("000001-1-train", {"pre/test/combined": 0.1, "post/shifted/combined": 0.5}),
        ("000002-1-train", {"pre/test/combined": 0.2, "post/shifted/combined": 0.6}),
        ("000002-1-finish", {"pre/test/combined": 0.3, "pre/shifted/combined": 0.7}),
    )
    assert {0: 0.1, 1: 0.2, 2: 0.3} == history.predicting("test")
    assert {1: 0.5, 2: 0.7} == history.predicting("shifted")


def test_a_site_that_only_measures_measures_the_same_state(tmp_path: Path) -> None:
    """It has the download of those that train in that round: the state after the round before."""
    history = write_numbers(
        tmp_path,
        ("000001-1-train", {"pre/test/combined": 0.1}),
        ("000002-1-evaluate", {"pre/test/combined": 0.2}),
    )
    assert {0: 0.1, 1: 0.2} == history.predicting("test")
