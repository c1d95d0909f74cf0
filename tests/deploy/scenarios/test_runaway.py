"""A run whose training runs away ends by itself, in words that everybody hears; on real data, in real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common.errors import RunFailed
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import Machine, write_site
from tests.words import Spoken, check_clear

LR = 1e6
"""The largest there is: the first epoch ends in no numbers, whatever the network."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine whose processes end with the test."""
    place = Machine(tmp_path / "machine")
    yield place
    place.end_all()


@pytest.mark.parametrize("lr", [100.0, LR])
def test_a_simulation_that_runs_away(tmp_path: Path, lr: float) -> None:
    """It ends within three attempts, and the same command ends so again."""
    folders = [write_site(tmp_path / name, samples=24) for name in ("hospital_a", "hospital_b")]
    settings = ServerSettings(
        method="fedavg",
        backbone="cnn",
        rounds=50,
        set={"lr": lr, "momentum": 0.9},
        state=tmp_path / "coordinator",
    )
    for _ in range(2):
        with pytest.raises(
            RunFailed, match=r"training diverged: [34] (attempts in a row|of \d attempts).*lr is 1"
        ):
            simulate(settings, folders, tmp_path / "sites")


def test_processes_of_a_run_that_runs_away(machine: Machine, tmp_path: Path) -> None:
    """Coordinator and sites end with 5 and the same reason; the status says failed as soon as it is."""
    words = ("--method", "fedavg", "--backbone", "mlp", "--rounds", "50", "--set", f"lr={LR}")
    server = machine.server(*words)
    names = ("hospital_a", "hospital_b")
    sites = [machine.client(write_site(tmp_path / name, samples=16)) for name in names]
    for name, site in zip(names, sites, strict=True):
        ended = Spoken(machine.finish(site, log=name), "", machine.said(name))
        check_clear(ended, 5, "training diverged: 3 of 5 attempts", "what to do: begin another run")
    status = json.loads(machine.call("pfl", "status", "--json").stdout)
    # Twice the round before was undone and the round closed; the third time ends the run.
    assert ("failed", 1) == (status["status"], status["attempt"])
    assert "training diverged: 3 of 5 attempts" in status["words"]
    assert 3 == sum(event["words"].startswith("training diverges") for event in status["events"])
    assert 1 == sum("training diverged" in event["words"] for event in status["events"])
    assert 5 == machine.stop(server)
