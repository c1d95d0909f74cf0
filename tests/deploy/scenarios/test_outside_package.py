"""The example of a package with a network and a method of its own, built, installed and run."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from pfl_common import methods, models
from pfl_common.app import plugins
from pfl_common.app.config import settle
from pfl_common.errors import SettingError
from pfl_common.randomness import generators
from pfl_common.spec.packages import Package
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors.state import State
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.method_help import explanation, listing, networks
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import Machine, write_site

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "outside"
PACKAGE = Package("pfl-example", "0.1.0")
BUILD = "import setuptools.build_meta, sys; setuptools.build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder of its own: its wheel, as the locked setuptools builds it, unpacked as pip would."""
    place = tmp_path_factory.mktemp("package")
    source = shutil.copytree(EXAMPLE, place / "source")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(place)], cwd=source, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place / "site")
    return place / "site"


@pytest.fixture
def example(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package where this process looks for packages."""
    monkeypatch.syspath_prepend(installed)
    invalidate_caches()
    plugins.forget()
    yield installed
    plugins.forget()
    for name in [name for name in sys.modules if name.startswith("pfl_example")]:
        del sys.modules[name]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two sites with grey pictures."""
    return [write_site(tmp_path / "data" / name, samples=12, seed=at) for at, name in enumerate("ab")]


def play(folders: list[Path], state: Path, **given: Any) -> Result:
    """Two rounds in one process."""
    words = {"backbone": "smallnorm", "rounds": 2, "sites": 2, "state": state / "coordinator"}
    return simulate(settle(ServerSettings, words | given, what="test"), folders, state / "sites")


def last_state(result: Result) -> dict[str, torch.Tensor]:
    """What the coordinator ended with."""
    return load_file(max((result.coordinator / "checkpoints").glob("round-*.safetensors")))


def test_a_federation_in_one_process(example: Path, folders: list[Path], tmp_path: Path) -> None:
    """Network and method train together, and the specification names the package for both."""
    result = play(folders, tmp_path / "run", method="fedblend", set={"beta": 0.3})
    assert {"backbone": PACKAGE, "method": PACKAGE} == result.spec.packages
    assert 0.3 == result.spec.settings["beta"]
    for site in result.sites.values():
        assert "encoder.conv1.weight" in load_file(site / "serving" / "serving.safetensors")


def test_with_nothing_of_its_own_it_is_fedavg(example: Path, folders: list[Path], tmp_path: Path) -> None:
    """β = 1 ends in FedAvg's bytes, β = 0.5 does not."""
    shared = {"lr": 0.1}
    plain = last_state(play(folders, tmp_path / "plain", method="fedavg", set=shared))
    whole = last_state(play(folders, tmp_path / "whole", method="fedblend", set={**shared, "beta": 1.0}))
    half = last_state(play(folders, tmp_path / "half", method="fedblend", set=shared))
    assert [] == [name for name in plain if not torch.equal(plain[name], whole[name])]
    assert [] != [name for name in plain if not torch.equal(plain[name], half[name])]


def test_the_blend(example: Path, folders: list[Path], tmp_path: Path) -> None:
    """At first contact what came; later β of it and the rest of the site's own."""
    spec = play(folders, tmp_path / "run", method="fedblend", rounds=1).spec
    site = methods.build_participant(spec)
    generators.initialise(site, 1)
    came = State.of(site).apply(torch.ones_like)
    site.receive(came, Task(Kind.TRAIN, 1, 4, since=0))
    assert all(bool((value == 1).all()) for value in State.view(site).values())
    site.receive(came.apply(lambda value: value * 3), Task(Kind.TRAIN, 2, 4, since=1))
    assert all(bool((value == 2).all()) for value in State.view(site).values())


@pytest.mark.parametrize("method", methods.names())
def test_our_methods_train_its_network(example: Path, method: str) -> None:
    """Its head is linear, its layers draw themselves; the network says what it takes."""
    backbone = models.build("smallnorm", shape=(1, 8, 8), classes=3)
    backbone.expect_linear_head(method)
    client = methods.load(method).client(methods.load(method).settle({}), backbone, 3)
    generators.initialise(client, 1)
    with torch.no_grad():
        assert (2, 3) == tuple(client.eval()(torch.rand(2, 1, 8, 8)).shape)
    with pytest.raises(SettingError, match="smallnorm got images of 2x2 pixels"):
        models.build("smallnorm", shape=(1, 2, 2), classes=3)


def test_lists_name_the_package(example: Path) -> None:
    """All methods, one with the meaning of its settings, what it costs with its own network; and the networks."""
    screen = Console(file=io.StringIO(), width=100)
    listing.show_all(screen)
    listing.show_one("fedblend", screen)
    explanation.show("fedblend", screen, networks=explanation.choose_networks("smallnorm"), settings={})
    networks.show_all(screen)
    said = screen.file.getvalue()
    for words in (
        "fedblend (pfl-example 0.1.0): go on from a blend",
        "From the installed package pfl-example 0.1.0.",
        "beta (β) = 0.5: a number, more than 0 and at most 1",
        "Rule: a site sets its model",
        "down, bytes a round",
        "smallnorm: from the installed package pfl-example 0.1.0",
    ):
        assert words in said


@pytest.mark.timeout(300)
def test_over_the_network_with_a_site_that_lacks_it(
    machine: Machine, folders: list[Path], installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That site declines in words and leaves; once it has the package, the run that waits for it goes on to its end."""
    monkeypatch.setenv("PYTHONPATH", str(installed))
    server = machine.server("--method", "fedblend", "--backbone", "smallnorm", "--rounds", "1")
    first = machine.client(folders[0])
    monkeypatch.delenv("PYTHONPATH")
    lacking = machine.client(folders[1])
    assert 2 == machine.finish(lacking, log="b")
    said = machine.said("b")
    assert (
        "needs the backbone smallnorm of the package pfl-example 0.1.0, which is not installed here" in said
    )
    assert "pip install 'pfl-example==0.1.0'" in said
    assert [] == list(machine.home.glob("state/pfl/sites/*/b/runs/*/spec.json"))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    again = machine.client(folders[1])
    assert [0, 0] == [machine.finish(first, log="a"), machine.finish(again, log="b")]
    assert 0 == machine.stop(server)
    spec = next(machine.home.glob("state/pfl/sites/*/b/runs/*/spec.json")).read_text()
    assert {"backbone": PACKAGE, "method": PACKAGE} == RunSpec.from_json(spec).packages
