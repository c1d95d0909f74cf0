"""Pictures over the real network: scaled by what the sites agree on, changed by chance, out of a cache on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pfl_client import data
from pfl_client.prediction import Predictor
from pfl_client.trainer_process.api import DataFolder
from pfl_common.app.config import settle
from pfl_common.spec.augmentation import Flip, Noise
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.client.data.scenarios.test_pixels import files
from tests.deploy.support.processes import Machine

AUGMENT = '[[augment]]\nname = "flip"\n\n[[augment]]\nname = "noise"\ndeviation = 0.1\n'


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


def test_a_run_with_everything(machine: Machine, tmp_path: Path) -> None:
    """Two sites whose trainers are held to a limit; in one process, and in memory, the same bytes come out."""
    folders = [files(tmp_path / name, 12).path for name in ("clinic_a", "clinic_b")]
    (tmp_path / "run.toml").write_text(AUGMENT)
    words = ["--method", "fedavg", "--rounds", "1", "--backbone", "mlp", "--normalise", "agreed"]
    server = machine.server(*words, "--config", tmp_path / "run.toml")
    clients = [machine.client(folder, "--memory-limit", "1G") for folder in folders]
    assert [0, 0] == [machine.finish(c, log=f.name) for c, f in zip(clients, folders, strict=True)]
    assert 0 == machine.stop(server)
    run = next(machine.home.glob("state/pfl/sites/*/clinic_a/runs/*"))
    spec = RunSpec.from_json((run / "spec.json").read_text())
    assert (3, (Flip(), Noise(deviation=0.1))) == (len(spec.model.pixel_mean), spec.augment)
    said = machine.said("clinic_a")
    assert ("memory is limited" in said, "asks for sums" in said) == (True, True)
    assert [] == list(machine.home.glob("state/pfl/sites/*/*/cache")), "removed with the run's end"
    asked = {"method": "fedavg", "sites": 2, "state": tmp_path / "alone" / "coordinator"}
    alone = simulate(
        settle(ServerSettings, asked, what="test"), folders, tmp_path / "alone" / "sites", pinned=spec
    )
    serving = run / "serving" / "serving.safetensors"
    one, other = load_file(serving), load_file(alone.sites["clinic_a"] / "serving" / "serving.safetensors")
    assert [] == [name for name in one if not torch.equal(one[name], other[name])]
    _predict_as_the_site_measures(serving, folders[0], spec)


def _predict_as_the_site_measures(serving: Path, folder: Path, spec: RunSpec) -> None:
    """The same numbers go into the network, to the bit."""
    predictor = Predictor.load(serving)
    pictures = sorted((folder / "test").rglob("*.png"))
    [(x, _)] = data.load(DataFolder(folder, "clinic_a"), spec).test.batches(99)
    with torch.no_grad():
        expected = predictor.served.participant(x).double().softmax(1)
    answers = [list(answer.probabilities.values()) for answer in predictor.predict(pictures)]
    assert expected.tolist() == answers
