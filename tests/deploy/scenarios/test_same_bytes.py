"""One specification, over the network and simulated: the same bytes everywhere.

Every method is played over real sockets, with mutual TLS and seals, coordinator and sites in the process of the test;
some of them, and with `--long` all, by programs of their own with trainers of their own. What is killed and
resumed, `test_three_ways.py` compares, for further methods.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pfl_common import methods
from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.in_one_process import Neighbours
from tests.deploy.support.personal import WORDS, assert_personal_state_is_real
from tests.deploy.support.processes import Machine, write_site

ROUNDS = 3
ALONE = ("fedcac",)
"""Masks and single replies, which no method of `test_three_ways.py` has."""


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Programs of their own take ten seconds a method."""
    if "method" in metafunc.fixturenames:
        alone = "machine" in metafunc.fixturenames and not metafunc.config.option.long
        metafunc.parametrize("method", ALONE if alone else methods.names())


def test_processes_and_simulator_end_in_the_same_bytes(
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
    assert_simulator_equals(method, run, sites, folders, tmp_path)


def test_network_and_simulator_end_in_the_same_bytes(
    method: str, folders: list[Path], tmp_path: Path
) -> None:
    """Mutual TLS, signed calls and seals on one side; loopback on the other; every tensor is equal."""
    own = dict(word.split("=") for word in WORDS.get(method, ()) if "=" in word)
    given = {"method": method, "rounds": ROUNDS, "backbone": "resnet8", "state": tmp_path / "coordinator"}
    given["set"] = {name: int(value) for name, value in own.items()}
    run, sites = Neighbours(settle(ServerSettings, given, what="test"), folders, tmp_path / "sites").play()
    assert_simulator_equals(method, run, sites, folders, tmp_path)


def assert_simulator_equals(
    method: str, run: Path, sites: Mapping[str, Path], folders: list[Path], tmp_path: Path
) -> None:
    """Play the same specification without a network: what coordinator and sites keep is equal, byte for byte."""
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
