"""torchvision's ResNet-18 from a file of weights, over the network on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pfl_common.models.torchvision_import import import_torchvision
from pfl_common.randomness import generators
from pfl_common.spec.run import RunSpec
from tests.deploy.support.processes import Machine, write_site

METHODS = ("dualfed", "fedbn", "fedper")
"""A personal projector and head beside what is shared; batch norms that stay; a head that stays."""
NAMES = ("hospital_a", "hospital_b")
STILL = "encoder.network.layer4"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One method; all three with `--long`."""
    metafunc.parametrize("method", METHODS if metafunc.config.option.long else METHODS[:1])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """One user's machine, on which nothing is left running."""
    made = Machine(tmp_path / "machine")
    yield made
    made.end_all()


def test_a_pretrained_network_is_trained_further(method: str, machine: Machine, tmp_path: Path) -> None:
    """Every site begins from the file's tensors: what is frozen ends as it was in the file, the rest has moved."""
    with generators.scope("weights"):
        network = import_torchvision("torchvision.models").resnet18()
    weights = tmp_path / "resnet18.pth"
    torch.save(network.state_dict(), weights)  # noqa: TID251  # such files are what is published
    folders = [
        write_site(tmp_path / "data" / name, samples=12, size=32, seed=n) for n, name in enumerate(NAMES)
    ]
    like = ("--weights", weights, "--weights-like", "ResNet18_Weights.IMAGENET1K_V1", "--freeze", STILL)
    words = (
        "--method",
        method,
        *like,
        "--image-size",
        "32",
        "--rounds",
        "1",
        "--set",
        "batch=6",
        "--set",
        "lr=0.001",
    )
    server = machine.server(*words, "--sites", "2", "--quorum", "1")
    clients = [machine.client(folder) for folder in folders]
    for folder, client in zip(folders, clients, strict=True):
        assert 0 == machine.finish(client, log=folder.name), machine.said(folder.name)
    assert 0 == machine.stop(server)

    (kept,) = (machine.home / "state").glob(f"pfl/sites/*/{NAMES[0]}/runs/*/spec.json")
    spec = RunSpec.from_json(kept.read_text())
    assert ("torchvision:resnet18", (STILL,)) == (spec.model.backbone, spec.frozen)
    given = network.state_dict()
    for name in NAMES:
        (file,) = (machine.home / "state").glob(f"pfl/sites/*/{name}/runs/*/serving/serving.safetensors")
        held = load_file(file)
        still, moved = "layer4.1.conv2.weight", "layer1.0.conv1.weight"
        assert torch.equal(given[still], held[f"encoder.network.{still}"])
        change = held[f"encoder.network.{moved}"] - given[moved]
        assert 0 < float(change.abs().max()) < 0.01
