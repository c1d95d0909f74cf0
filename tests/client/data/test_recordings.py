"""Recordings: cut into windows worked out by hand, channels by name, none in two parts; damaged ones are left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfl_client import data
from pfl_client.data.declaration import Declared
from pfl_client.data.recordings import Cut, read_one
from pfl_client.trainer_process.api import DataFolder
from pfl_common.errors import DataError
from pfl_common.spec.run import RunSpec
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from tests.client.data.test_images import spec
from tests.client.data.written import write_recordings, write_rows

STEPS = [{"time": number, "y": number + 100, "X": number} for number in range(7)]


def agreed(*folders: DataFolder) -> RunSpec:
    return replace(spec(), model=agree({one.site: data.describe(one) for one in folders}, Wish()))


def test_windows_by_hand(tmp_path: Path) -> None:
    """Three steps each, two apart; the time is no channel, and channels stand in the order of their names."""
    path = write_rows(tmp_path / "r.csv", STEPS)
    windows = read_one(path, Cut(3, 2))
    assert [
        [[0, 1, 2], [100, 101, 102]],
        [[2, 3, 4], [102, 103, 104]],
        [[4, 5, 6], [104, 105, 106]],
    ] == windows.tolist()
    assert np.array_equal(windows[:, ::-1], read_one(path, Cut(3, 2), ("y", "X")))
    assert [[0, 1, 2], [0, 1, 2]] == read_one(path, Cut(3, 2, time="y"))[0].tolist()


def test_data_json_says_how_they_are_cut() -> None:
    """Half of a window is the step where nothing is said; a run's length wins."""
    assert Cut(128, 64) == Cut.of(Declared())
    assert Cut(10, 5, "s") == Cut.of(Declared(window=10, time="s"))
    assert Cut(20, 3) == Cut.of(Declared(window=10, step=3), 20)


def test_a_folder_of_recordings(tmp_path: Path) -> None:
    """Recognised by its files; described with the names of the channels, and standardised over all sites."""
    folder = DataFolder(write_recordings(tmp_path / "a"), "a")
    said = data.describe(folder)
    assert ("windows", (2, 32), ("a", "z"), 40) == (said.kind, said.shape, said.columns, said.samples)
    run = agreed(folder)
    assert "har_cnn" == run.model.backbone
    local = data.load(folder, run)
    assert (40, 2, 32) == tuple(local.train.x.shape)
    assert float(local.train.x[:, 1].mean().abs()) < 1e-5


def test_a_recording_is_never_in_two_parts(tmp_path: Path) -> None:
    """Neither when validation is held back, nor when an undivided folder is divided."""
    folder = DataFolder(write_recordings(tmp_path / "a", count=3), "a", hold_out=0.3)
    local = data.load(folder, agreed(folder))
    assert 0 == len(local.validation) % 5, "whole recordings of five windows"
    assert 0 < len(local.validation) < 30
    whole = tmp_path / "b"
    (write_recordings(tmp_path / "c") / "train").rename(whole)
    (whole / "data.json").write_text('{"window": 32, "step": 16}')
    local = data.load(DataFolder(whole, "b"), agreed(folder))
    assert [0, 0] == [len(part) % 5 for part in (local.train, local.test)]
    assert len(local.test)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"time": 1, "a": 1, "z": "secret"}] * 40, "line 2: the cell in column 'z' is no number"),
        ([{"time": 1, "a": 1, "z": None}] * 40, "line 2: the cell in column 'z' is missing"),
        ([{"time": 1, "a": 1, "z": 2}] * 31, "it has 31 steps, a window has 32"),
        ([{"time": 1, "a": 1, "q": 2}] * 40, "its channels are others than most recordings have"),
    ],
)
def test_a_damaged_recording_is_left_out(tmp_path: Path, rows: list[dict[str, object]], words: str) -> None:
    """And named by its position; with --strict-data it is an error."""
    folder = write_recordings(tmp_path / "a")
    write_rows(folder / "train" / "fast" / "Jane_Doe.csv", rows)
    said = data.describe(DataFolder(folder, "a", most_bad=0.5))
    told = " ".join(said.warnings)
    assert 40 == said.samples
    assert words in told
    assert "file 1 of train/fast" in told
    assert "Jane" not in told
    assert "secret" not in told
    with pytest.raises(DataError, match="is no recording that can be read") as error:
        data.describe(DataFolder(folder, "a", strict=True))
    assert "Jane" not in error.value.seen


def test_contradictions_are_refused(tmp_path: Path) -> None:
    """Pictures among recordings that data.json declares, a column of time that is not there."""
    folder = write_recordings(tmp_path / "a")
    (folder / "train" / "slow" / "x.png").touch()
    with pytest.raises(DataError, match="1 of 17 files are no files of rows"):
        data.describe(DataFolder(folder, "a"))
    (folder / "train" / "slow" / "x.png").unlink()
    (folder / "data.json").write_text(json.dumps({"window": 32, "time": "seconds"}))
    with pytest.raises(DataError, match=r"no column 'seconds', which data\.json says is the time"):
        data.describe(DataFolder(folder, "a"))
