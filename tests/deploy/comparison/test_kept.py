"""Kept results are used for the very same run alone; everything else in the file is counted and left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pfl_deploy.comparison.kept import Circumstances, Kept
from pfl_deploy.comparison.outcome import Outcome
from tests.deploy.comparison.given import Played

NOW = Circumstances({"a": "11", "b": "22"}, {"code": "c0de", "torch": "2"})
SERVER = {"method": "fedavg", "seed": 3, "set": {"lr": 0.1}}
DONE = Outcome({"test": {"a": 0.5}}, {1: 0.5})


def keep(file: Path, circumstances: Circumstances = NOW) -> Kept:
    """A file with one result."""
    kept = Kept(file, circumstances)
    kept.add(SERVER, DONE)
    return kept


def test_the_same_run_is_found_again(tmp_path: Path) -> None:
    """Whatever the order its settings are named in."""
    keep(tmp_path / "kept")
    again = Kept(tmp_path / "kept", NOW)
    assert DONE == again.find(dict(reversed(SERVER.items())))
    assert None is again.find({**SERVER, "seed": 4})
    assert [f"{tmp_path / 'kept'} holds 1 results of these data and this code"] == again.tell()


@pytest.mark.parametrize(
    ("circumstances", "why"),
    [
        (Circumstances({"a": "11", "b": "33"}, NOW.versions), "other data"),
        (Circumstances({"a": "11"}, NOW.versions), "other data"),
        (Circumstances(NOW.data, NOW.versions, 0.2), "other data"),
        (Circumstances(NOW.data, NOW.versions, weights="0" * 64), "other weights"),
        (Circumstances(NOW.data, {"code": "0ther", "torch": "2"}), "other code"),
        (Circumstances(NOW.data, {"code": "c0de", "torch": "3"}), "another machine or torch"),
    ],
)
def test_results_of_other_data_or_code_are_not_used(
    tmp_path: Path, circumstances: Circumstances, why: str
) -> None:
    """How many there are is said, and why."""
    keep(tmp_path / "kept")
    now = Kept(tmp_path / "kept", circumstances)
    assert None is now.find(SERVER)
    for fact in ("0 results", f"1 of {why}"):
        assert fact in now.tell()[0]


def test_results_from_the_same_weights_are_found_again(tmp_path: Path) -> None:
    """By the bytes of their file: its name stands among the settings."""
    begun = Circumstances(NOW.data, NOW.versions, weights="1" * 64)
    keep(tmp_path / "kept", begun)
    assert DONE == Kept(tmp_path / "kept", begun).find(SERVER)
    assert "1 of other weights" in Kept(tmp_path / "kept", NOW).tell()[0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"request": "{}", "result": {"test": {"a": 0.5}}}', "1 of an older release"),
        ("[1, 2]", "1 of an older release"),
        ('{"form": 3, "key": {}, "result": {"accuracy": 7}}', "1 of lines that cannot be read"),
        ("no json", "1 of lines that cannot be read"),
    ],
)
def test_lines_of_another_kind_are_left(tmp_path: Path, line: str, why: str) -> None:
    """In words, and without a crash; they stay in the file."""
    file = tmp_path / "kept"
    file.write_text(line + "\n")
    kept = keep(file)
    assert why in kept.tell()[0]
    assert DONE == Kept(file, NOW).find(SERVER)
    assert line == file.read_text().splitlines()[0]


def test_a_line_that_a_kill_has_cut(tmp_path: Path) -> None:
    """It is said, its run is played again, and the next line does not become part of it."""
    file = tmp_path / "kept"
    keep(file)
    whole = file.read_text()
    file.write_text(whole + whole[: len(whole) // 2])
    kept = Kept(file, NOW)
    assert "1 of a line" in kept.tell()[0]
    kept.add({**SERVER, "seed": 4}, DONE)
    again = Kept(file, NOW)
    assert (DONE, DONE) == (again.find(SERVER), again.find({**SERVER, "seed": 4}))


def test_what_another_try_may_change_is_not_kept(tmp_path: Path) -> None:
    """A run that diverged is kept, one that the machine has killed is not."""
    file = tmp_path / "kept"
    kept = Kept(file, NOW)
    kept.add(SERVER, Outcome(failed="SIGKILL", lasting=False))
    assert not file.exists()
    kept.add(SERVER, Outcome(failed="training diverged"))
    assert "training diverged" == json.loads(file.read_text())["result"]["failed"]


def test_a_comparison_goes_on_where_it_was_broken_off(tmp_path: Path, plan: Path, data: Path) -> None:
    """The second time nothing is run, and that all came from the file is said; with other data all is run again."""
    first = Played(plan, data, keep=tmp_path / "kept")
    again = Played(plan, data, keep=tmp_path / "kept")
    assert (8, 0) == (len(first.asked), len(again.asked))
    assert 8 == again.found.to_json()["runs"]["from_file"]
    assert first.found.rows == again.found.rows

    change(data / "a" / "train.npz")
    other = Played(plan, data, keep=tmp_path / "kept")
    assert 8 == len(other.asked)
    assert "8 of other data" in other.kept.tell()[0]


def change(file: Path) -> None:
    """Other labels: the first two are exchanged."""
    import numpy as np

    arrays: dict[str, Any] = dict(np.load(file))
    arrays["y"][[0, 1]] = arrays["y"][[1, 0]]
    np.savez(file, **arrays)
