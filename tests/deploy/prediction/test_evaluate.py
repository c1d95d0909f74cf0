"""`pfl evaluate` as it is typed: the site's own numbers, other files, groups, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pfl_common import methods
from pfl_deploy.cli import main
from pfl_deploy.simulation.simulate import read_curve
from tests.client.data.written import write_table, write_texts, write_windows
from tests.deploy.prediction.finished import finish
from tests.deploy.support.processes import write_site
from tests.words import check_clear, speak

KINDS = {
    "pictures": lambda folder: write_site(folder, samples=24),
    "texts": lambda folder: write_texts(folder, ["the", "bad", "fever", "good"]),
    "windows": write_windows,
    "tables": lambda folder: write_table(folder, columns=("age", "weight", "pulse")),
}


def measured(*words: str | Path) -> dict[str, Any]:
    """What the command says as JSON."""
    said = speak(main, "evaluate", *words, "--resamples", "100", "--json")
    check_clear(said, 0)
    return json.loads(said.out)


def own(state: Path, name: str = "pre/test/combined") -> float:
    """What the site wrote down at the end."""
    [history] = state.glob("runs/*/history.jsonl")
    return read_curve(state.name, history).last(name)


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a site, whose data lie in `data` beside."""
    home = tmp_path_factory.mktemp(request.param)
    data = KINDS[request.param](home / "data")
    return finish([data], home, set={"lr": 0.1, "batch": 8, "epochs": 1}) / "data"


def test_the_sites_own_numbers(site: Path) -> None:
    """Of each kind: the data folder and its file say what the site measured, head by head."""
    folder = site.parents[1] / "data"
    found = measured(site, folder)
    assert own(site) == found["measures"]["accuracy"]["value"]
    assert {"global": own(site, "pre/test/global")} == found["heads"]
    file = measured(site, folder / "test.npz")
    assert {**found, "pictures": []} == {**file, "pictures": []}
    assert sum(map(sum, found["confusion"])) == found["samples"] == 12
    both = measured(site, folder, "--part", "all")
    assert 36 == both["samples"]


@pytest.mark.parametrize("method", [name for name in methods.names() if name != "fedrod"])
def test_the_sites_own_accuracy_by_method(method: str, tmp_path: Path) -> None:
    """The finished model's, where finishing changes it."""
    data = write_site(tmp_path / "data", samples=24)
    state = finish([data], tmp_path, method=method, backbone="mlp", set={"batch": 8}) / "data"
    [history] = state.glob("runs/*/history.jsonl")
    last = dict(read_curve("data", history).points[-1][1])
    expected = last.get("pre/test/finished", last["pre/test/combined"])
    assert expected == measured(state, data)["measures"]["accuracy"]["value"]


def test_a_folder_without_parts_is_divided_as_the_site_did(tmp_path: Path) -> None:
    """Only what the site kept for testing is measured; a broken file is counted, and an error in the end."""
    for number in range(24):
        folder = tmp_path / "data" / ("dark", "light")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 100 * (number % 2) + number).save(folder / f"{number:02}.png")
    state = finish([tmp_path / "data"], tmp_path, backbone="mlp") / "data"
    found = measured(state, tmp_path / "data")
    assert (9, own(state)) == (found["samples"], found["measures"]["accuracy"]["value"])
    for file in (tmp_path / "data" / "dark").iterdir():
        if file.name < "16":
            file.write_bytes(b"broken")
    words = ("evaluate", state, tmp_path / "data", "--part", "all", "--resamples", "100")
    check_clear(speak(main, *words), 3, "16 samples", "8 files could not be read, 16 samples were")
    check_clear(speak(main, *words, "--skip-bad"), 0, "16 samples")


def test_tables_with_groups_and_pictures(tmp_path: Path) -> None:
    """The columns of class and patient by name; the table of classes; both pictures."""
    data = write_table(tmp_path / "data", columns=("age", "weight", "pulse"))
    state = finish([data], tmp_path, set={"lr": 0.1, "batch": 8}) / "data"
    with np.load(data / "test.npz") as file:
        lines = [
            f"{patient // 3},{','.join(map(str, row))},{('healthy', 'ill')[label]}"
            for patient, (row, label) in enumerate(zip(file["x"], file["y"], strict=True))
        ]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["patient,age,weight,pulse,state", *lines]))
    words = (state, table, "--label", "state", "--group", "patient")
    found = measured(*words)
    assert (4, own(state)) == (found["groups"], found["measures"]["accuracy"]["value"])
    assert found == measured(*words)
    said = speak(main, "evaluate", *words, "--plots", tmp_path / "plots")
    check_clear(said, 0, "1000 resamples of 4 groups", "expected calibration error", "healthy", "picture:")
    for name in ("confusion", "calibration"):
        with Image.open(tmp_path / "plots" / f"{name}.png") as picture:
            assert (1024, 624) == picture.size


def test_wrong_words(tmp_path: Path) -> None:
    """A part, an option for files, a table without its class, a file without classes, samples of an unknown class."""
    data = write_table(tmp_path / "data")
    state = finish([data], tmp_path, set={"lr": 0.1, "batch": 8}) / "data"
    (tmp_path / "t.csv").write_text("1,2,3\n")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3)))
    np.savez(tmp_path / "y.npz", x=np.zeros((2, 3)), y=np.array([0, 5]))
    for words, code, phrase in (
        ((data, "--part", "tset"), 2, "did you mean 'test'"),
        ((data, "--part", "shifted"), 3, "no samples in its part 'shifted'"),
        ((data, "--label", "state"), 2, "are for single files"),
        ((tmp_path / "t.csv",), 2, "--label COLUMN"),
        ((tmp_path / "x.npz",), 3, "no array 'y'"),
        ((tmp_path / "y.npz",), 3, "the run does not know"),
        ((tmp_path / "none",), 2, "there is no file"),
    ):
        check_clear(speak(main, "evaluate", state, *words), code, phrase)
