"""One specification, over the network and in one process: the same bytes everywhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common import methods
from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.personal import WORDS, assert_personal_state_is_real
from tests.deploy.support.processes import Machine, write_site

ROUNDS = 3


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two sites of unequal size; the second lacks a class."""
    return [
        write_site(tmp_path / "data" / "hospital_a", samples=30, seed=1),
        write_site(tmp_path / "data" / "hospital_b", samples=22, classes=("a", "b"), seed=2),
    ]


@pytest.mark.parametrize("method", methods.names())
def test_network_and_simulator_end_in_the_same_bytes(
    method: str, machine: Machine, folders: list[Path], tmp_path: Path
) -> None:
    """Real processes, mutual TLS, ZeroMQ and files on one side; loopback on the other; every tensor is equal."""
    words = ("--rounds", str(ROUNDS), "--backbone", "resnet8", *WORDS.get(method, ()))
    server = machine.server("--method", method, *words)
    clients = [machine.client(folder) for folder in folders]
    assert [0, 0] == [machine.finish(c, log=f.name) for c, f in zip(clients, folders, strict=True)]
    assert 0 == machine.stop(server)
    run = next((machine.home / "pfl-state" / "runs").iterdir())
    sites = {f.name: next(machine.home.glob(f"state/pfl/sites/*/{f.name}/runs/*")) for f in folders}
    spec = RunSpec.from_json((sites["hospital_a"] / "spec.json").read_text())

    given = {"method": method, "sites": 2, "state": tmp_path / "alone" / "coordinator"}
    settings = settle(ServerSettings, given, what="test")
    alone = simulate(settings, folders, tmp_path / "alone" / "sites", pinned=spec)

    assert_equal_files(run / "checkpoints", alone.coordinator / "checkpoints", expected=2)
    for name, folder in sites.items():
        assert_equal_files(folder / "generations", alone.sites[name] / "generations", expected=2)
        assert_equal_files(folder / "serving", alone.sites[name] / "serving", expected=1)
    assert_personal_state_is_real(method, sites)


def assert_equal_files(first: Path, second: Path, *, expected: int) -> None:
    """The same tensor files, byte for byte."""
    names = sorted(path.name for path in first.glob("*.safetensors"))
    assert expected == len(names)
    assert names == sorted(path.name for path in second.glob("*.safetensors"))
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
