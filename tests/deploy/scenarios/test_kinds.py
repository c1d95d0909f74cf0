"""Data that are no pictures, from folder to trained model: texts over the network, others in one process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.settings import ServerSettings
from tests.client.data.written import write_table, write_texts, write_windows
from tests.deploy.support.processes import Machine

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


def play(folders: list[Path], state: Path, **given: Any) -> Result:
    """A short run in one process."""
    words = {"method": "fedavg", "rounds": 6, "sites": len(folders), "state": state / "coordinator", **given}
    return simulate(settle(ServerSettings, words, what="test"), folders, state / "sites")


def differences(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> dict[str, object]:
    """Tensors that are not equal to the bit."""
    assert one.keys() == other.keys()
    return {name: value for name, value in one.items() if not torch.equal(value, other[name])}


def accuracy(result: Result) -> list[float]:
    """Of each site, on its own test samples, after the last round."""
    return [curve.last("pre/test/combined") for curve in result.curves().values()]


def test_texts_over_the_network(machine: Machine, tmp_path: Path) -> None:
    """Two sites with other words, other classes and texts of another length train one model; each learns its own."""
    folders = [
        write_texts(tmp_path / "clinic_a", ["the", "bad", "fever", "good"]),
        write_texts(
            tmp_path / "clinic_b", ["ugly", "good", "cough"], classes=("good", "ugly"), length=8, seed=1
        ),
    ]
    server = machine.server("--method", "fedper", "--rounds", "4", "--set", "lr=0.2", "--set", "batch=8")
    clients = [machine.client(folder) for folder in folders]
    assert [0, 0] == [machine.finish(c, log=f.name) for c, f in zip(clients, folders, strict=True)]
    assert 0 == machine.stop(server)
    assert "all 4 words of the vocabulary" in machine.said("clinic_a")
    assert "fasttext, for texts" in machine.said("server")
    sites = {f.name: next(machine.home.glob(f"state/pfl/sites/*/{f.name}/runs/*")) for f in folders}
    specs = [RunSpec.from_json((site / "spec.json").read_text()) for site in sites.values()]
    assert specs[0] == specs[1]
    model = specs[0].model
    assert (("bad", "good", "ugly"), ("bad", "cough", "fever", "good", "the", "ugly")) == (
        model.classes,
        model.words,
    )
    assert ("tokens", "fasttext", (8,), 8) == (model.kind, model.backbone, model.shape, model.tokens)
    serving = sites["clinic_b"] / "serving" / "serving.safetensors"
    with safe_open(serving, "pt") as tensors:
        about = json.loads(tensors.metadata()["pfl"])
        assert [8, 32] == tensors.get_slice("encoder.words.weight").get_shape()
    assert list(model.words) == about["spec"]["model"]["words"]
    alone = simulate(
        settle(
            ServerSettings,
            {"method": "fedper", "sites": 2, "state": tmp_path / "alone" / "coordinator"},
            what="test",
        ),
        folders,
        tmp_path / "alone" / "sites",
        pinned=specs[0],
    )
    same = alone.sites["clinic_b"] / "serving" / "serving.safetensors"
    assert {} == differences(load_file(serving), load_file(same)), "in one process the same tensors"
    audit = (machine.home / "state").glob("pfl/sites/*/clinic_b/audit.jsonl")
    joining = [line for line in next(audit).read_text().splitlines() if "NUMBERING_WORDS" in line]
    assert 1 == len(joining), "the words left once, and the list says so"


def test_texts_are_learnt(tmp_path: Path) -> None:
    """A word that is called like its class tells it, whatever number each site gives it."""
    folders = [
        write_texts(tmp_path / "data" / "a", ["the", "bad", "fever", "good"]),
        write_texts(tmp_path / "data" / "b", ["good", "cough", "bad"], seed=1),
    ]
    result = play(folders, tmp_path / "out", set={"lr": 0.2, "batch": 8, "epochs": 3})
    assert [1.0, 1.0] == accuracy(result)


def test_a_site_that_keeps_its_words_takes_part_by_the_operators_list(tmp_path: Path) -> None:
    """Nothing of them leaves; the run's list is the operator's."""
    folders = [
        write_texts(
            tmp_path / "data" / name, words, said={"kind": "tokens", "tell_vocabulary": False}, seed=at
        )
        for at, (name, words) in enumerate([("a", ["the", "bad", "good"]), ("b", ["good", "x", "bad"])])
    ]
    (tmp_path / "words.txt").write_text("bad\ngood\n")
    result = play(
        folders,
        tmp_path / "out",
        vocabulary=str(tmp_path / "words.txt"),
        set={"lr": 0.2, "batch": 8, "epochs": 3},
    )
    assert ("bad", "good") == result.spec.model.words
    assert [1.0, 1.0] == accuracy(result)


def test_windows_are_learnt(tmp_path: Path) -> None:
    """By their own network, standardised over the sites."""
    folders = [write_windows(tmp_path / "data" / name, seed=at) for at, name in enumerate("ab")]
    result = play(folders, tmp_path / "out", set={"lr": 0.05, "batch": 8, "epochs": 2})
    assert ("har_cnn", (3, 32)) == (result.spec.model.backbone, result.spec.model.shape)
    assert min(accuracy(result)) > 0.9


def test_tables_are_learnt(tmp_path: Path) -> None:
    """Whose columns have names at one site."""
    columns = ("age", "weight", "pulse")
    folders = [
        write_table(tmp_path / "data" / "a", columns=columns),
        write_table(tmp_path / "data" / "b", seed=1),
    ]
    result = play(folders, tmp_path / "out", set={"lr": 0.1, "batch": 8, "epochs": 3})
    assert ("mlp", columns) == (result.spec.model.backbone, result.spec.model.columns)
    assert min(accuracy(result)) > 0.9


def test_the_example_of_the_readme_runs(machine: Machine, tmp_path: Path) -> None:
    """As it is printed: it writes folders of each kind, and each is taken for what it is."""
    example = re.search(r"```python\n(# Three data folders.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    subprocess.run([sys.executable, "-c", example[1]], cwd=tmp_path, check=True, timeout=60)
    recognised = {
        "clinic": "texts of 4 words, numbered by a list of 5 words, which is told",
        "wearer": "windows of sensors, 9x128 (channels x time)",
        "bank": "a table of 3 columns",
    }
    for name, words in recognised.items():
        said = machine.call("pfl", "doctor", "--data", tmp_path / name)
        assert words in " ".join(said.stdout.split()), said
