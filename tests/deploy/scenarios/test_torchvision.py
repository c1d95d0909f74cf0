"""A network of torchvision in a whole federation, and its version in the specification.

That every method trains one stands in tests/common/methods/scenarios/test_torchvision_network.py.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from safetensors.torch import load_file

from pfl_common.app.config import settle
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import write_site

SMALL = "torchvision:shufflenet_v2_x0_5"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two sites with grey pictures."""
    place = tmp_path_factory.mktemp("data")
    return [write_site(place / name, samples=12, size=32, seed=at) for at, name in enumerate("ab")]


def play(folders: list[Path], state: Path, method: str, backbone: str = SMALL) -> Result:
    """One round in one process, with a projector unless the method has one of its own."""
    words = {"method": method, "backbone": backbone, "rounds": 1, "sites": 2, "state": state / "coordinator"}
    more = {"encoder_projector": method != "dualfed", "set": {"lr": 0.01, "batch": 6}}
    return simulate(settle(ServerSettings, words | more, what="test"), folders, state / "sites")


@pytest.mark.parametrize("method", ["fedbn", "dualfed"])
def test_a_federation_trains_it(method: str, folders: list[Path], tmp_path: Path) -> None:
    """A round with batch norm and projector; each site measures and keeps its whole model."""
    result = play(folders, tmp_path, method)
    assert all(curve.points[-1][0] == "000001-1-finish" for curve in result.curves().values())
    for site in result.sites.values():
        serving = load_file(site / "serving" / "serving.safetensors")
        assert any(".network.conv1.0.weight" in name for name in serving)


def test_the_version_is_pinned_where_it_decides(folders: list[Path], tmp_path: Path) -> None:
    """With a network of torchvision's, and in no other run: those keep their text."""
    assert version("torchvision") == play(folders, tmp_path / "one", "fedper").spec.versions["torchvision"]
    own = play(folders, tmp_path / "two", "fedper", "mlp").spec
    assert "torchvision" not in own.versions
    assert "packages" not in own.to_json()
