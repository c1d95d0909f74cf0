"""`pfl predict` as it is typed: all kinds of data, broken files, standard output."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfl_deploy.cli import main
from pfl_deploy.simulation.simulate import read_curve
from tests.client.data.written import write_table, write_texts, write_windows
from tests.deploy.prediction.finished import finish
from tests.deploy.support.processes import PROGRAMS, write_site
from tests.words import check_clear, speak


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a site of small grey pictures; its data lie in `data` beside."""
    home = tmp_path_factory.mktemp("pictures")
    data = write_site(home / "data", samples=24)
    return finish([data], home, backbone="mlp", method="fedrod") / "data"


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize(
    ("write", "given"),
    [
        (lambda folder: write_site(folder, samples=24), {"backbone": "mlp"}),
        (lambda folder: write_texts(folder, ["the", "bad", "fever", "good"]), {}),
        (write_windows, {}),
        (write_table, {}),
    ],
    ids=["pictures", "texts", "windows", "tables"],
)
def test_the_accuracy_is_the_sites_own(write, given, tmp_path: Path) -> None:
    """Of each kind of data: what the site measured at the end, recomputed from the predictions for its test part."""
    data = write(tmp_path / "data")
    state = finish([data], tmp_path, set={"lr": 0.1, "batch": 8, "epochs": 1}, **given) / "data"
    check_clear(speak(main, "predict", state, data / "test.npz", "--out", tmp_path / "p.csv"), 0)
    with np.load(data / "test.npz") as file:
        labels = file["y"]
    names = json.loads((data / "classes.json").read_text())
    rows = read(tmp_path / "p.csv")
    for view, column in (("combined", "class"), ("global", "global.class")):
        right = np.mean([names[label] == row[column] for label, row in zip(labels, rows, strict=True)])
        [history] = state.glob("runs/*/history.jsonl")
        assert read_curve("data", history).last(f"pre/test/{view}") == right


def test_what_cannot_be_read_is_told_and_counted(site: Path, tmp_path: Path) -> None:
    """By its place, not its name, where no terminal is; the end is an error unless that was allowed."""
    for name in ("1", "3"):
        Image.new("L", (16, 16)).save(tmp_path / f"{name}.png")
    (tmp_path / "2_Jane.png").write_bytes(b"no picture")
    out = tmp_path / "out" / "p.csv"
    out.parent.mkdir()
    files = [tmp_path / name for name in ("1.png", "2_Jane.png", "3.png")]
    said = speak(main, "predict", site, *files, "--out", out)
    check_clear(
        said, 3, "left out: file 2: its format is not known", "predicted 2 samples from 3 files", "--skip-bad"
    )
    assert "Jane" not in said.text
    assert [str(files[0]), str(files[2])] == [row["file"] for row in read(out)]
    check_clear(speak(main, "predict", site, *files, "--skip-bad", "--out", out), 0, "left out: 1 files")
    check_clear(
        speak(main, "predict", site, files[1], "--skip-bad", "--out", out), 3, "1 files could not be read"
    )


def test_wrong_words(site: Path, tmp_path: Path) -> None:
    """A path that is not there, a format, a model, nothing in a folder."""
    (tmp_path / "empty").mkdir()
    check_clear(speak(main, "predict", site, tmp_path / "no.png"), 2, "there is no file or folder")
    check_clear(speak(main, "predict", site, tmp_path, "--out", "a.xls"), 2, "no format 'xls'")
    check_clear(speak(main, "predict", tmp_path / "empty", tmp_path), 2, "there is no serving model")
    words = ("predict", site, tmp_path / "empty", "--out", tmp_path / "p.csv")
    check_clear(speak(main, *words), 3, "there is nothing to read")


def call(home: Path, *words: str | Path, rest: str = "") -> subprocess.CompletedProcess[str]:
    """The program in a shell."""
    line = [sys.executable, "-c", PROGRAMS["pfl"], *map(str, words)]
    program = ["bash", "-c", f'"$0" "$@" {rest}; exit ${{PIPESTATUS[0]}}', *line]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        program, cwd=home, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_standard_output_holds_predictions_alone(site: Path, tmp_path: Path) -> None:
    """A pipe that is closed early is no error."""
    data = site.parents[1] / "data" / "test.npz"
    done = call(tmp_path, "predict", site, data, "--format", "jsonl")
    assert (0, 12) == (done.returncode, done.stdout.count('{"file"')), done.stderr
    assert "predicted 12 samples" in done.stderr
    np.savez(tmp_path / "many.npz", x=np.zeros((20_000, 16, 16), np.uint8))
    done = call(tmp_path, "predict", site, "many.npz", rest="| head -1")
    assert (0, 1) == (done.returncode, done.stdout.count("\n")), done.stderr
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
