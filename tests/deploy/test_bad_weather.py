"""Real processes in bad weather: full disks, a coordinator elsewhere, a dead site, a folder that is not one's own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.processes import Machine, write_site

A, B = "hospital_a", "hospital_b"

FULL_WHILE = """
import os, shutil, sys, types
from pathlib import Path

sign, look = Path(os.environ["WEATHER"]), shutil.disk_usage

def usage(path):
    full = sign.exists() and sign.read_text() in " ".join(sys.orig_argv)
    return types.SimpleNamespace(free=1_000_000) if full else look(path)

shutil.disk_usage = usage
"""
"""While the file that WEATHER names is there, every disk of the program that it names is full."""


@dataclass
class Stormy(Machine):
    """A machine whose disks can be full: for its sites, or for its coordinator."""

    @property
    def sign(self) -> Path:
        """While this file is there, the program that it names finds no room."""
        return self.home / "full"

    @property
    def environment(self) -> Mapping[str, str]:
        """With a module that Python loads before any other."""
        return {**super().environment, "PYTHONPATH": str(self.home / "weather"), "WEATHER": str(self.sign)}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Stormy]:
    """Two data folders, and processes that end with the test."""
    place = Stormy(tmp_path / "machine")
    (place.home / "weather").mkdir(parents=True)
    (place.home / "weather" / "sitecustomize.py").write_text(FULL_WHILE)
    for seed, name in enumerate((A, B)):
        write_site(place.home / name, samples=24 + 6 * seed, size=12, seed=seed)
    yield place
    place.end_all()


def status(machine: Machine) -> dict[str, object]:
    """What `pfl status` says."""
    return dict(json.loads(machine.call("pfl", "status", "--json").stdout))


def doing(machine: Machine, site: str) -> str:
    """What `pfl status` says of one site."""
    return str(next(line["doing"] for line in status(machine)["sites"] if line["site"] == site))  # type: ignore[attr-defined]


def test_full_disks_on_both_sides(machine: Stormy) -> None:
    """Nobody trains in vain, nobody gives up, the operator reads who lacks room; then the run goes on by itself."""
    words = ("--method", "fedavg", "--backbone", "resnet8", "--rounds", "12", "--quorum", "1")
    server = machine.server(*words)
    clients = {name: machine.client(machine.home / name) for name in (A, B)}
    machine.wait_for(lambda: "round=2" in machine.said("server"), server, "server")
    machine.sign.write_text("pfl_server")
    machine.wait_for(lambda: "no room on the disk" in str(status(machine)["words"]), server, "server")
    machine.sign.write_text("pfl_client")
    machine.wait_for(lambda: "disk_full: 1.0 MB are free" in doing(machine, A), server, "server")
    assert "the coordinator has no room" in machine.said(A) + machine.said(B)
    machine.wait_for(lambda: "waiting for room on the disk" in machine.said(A), clients[A], A)
    assert "running" == status(machine)["status"]
    machine.sign.unlink()
    assert [0, 0] == [machine.finish(client, log=name) for name, client in clients.items()]
    assert ("finished", 12) == (status(machine)["status"], status(machine)["round"])
    assert 0 == machine.stop(server)


def test_a_coordinator_that_comes_back_at_another_address(machine: Stormy) -> None:
    """With `--port 0` each start is at another port: the sites of this machine find it, and lose nothing."""
    words = (
        "--method",
        "fedavg",
        "--backbone",
        "resnet8",
        "--rounds",
        "4",
        "--set",
        "epochs=12",
        "--quorum",
        "1",
    )
    server = machine.server(*words)
    clients = {name: machine.client(machine.home / name) for name in (A, B)}
    machine.wait_for(lambda: "round=2" in machine.said("server"), server, "server")
    server.kill()
    server.wait(10)
    server = machine.server(*words, log="again")
    for name, client in clients.items():
        # With quorum 1 the other one waits for whoever gives up: what the first says is what is wrong.
        assert 0 == machine.finish(client, log=name), machine.said(name)
        assert "the coordinator is at another address now" in machine.said(name)
    assert "run resumed" in machine.said("again")
    assert 0 == machine.stop(server)


def test_stopped_while_a_dead_site_is_awaited(machine: Stormy) -> None:
    """Not the deadline of an hour but a lease later the run is over; then the dead one is started with another's
    folder, which it is told, and with its own, and gets its model.
    """
    words = ("--method", "fedper", "--backbone", "resnet8", "--set", "epochs=6")
    server = machine.server(*words, "--quorum", "1", "--lease-seconds", "4")
    clients = {name: machine.client(machine.home / name) for name in (A, B)}
    machine.wait_for(lambda: "round=2" in machine.said("server"), server, "server")
    clients[B].kill()
    clients[B].wait(10)
    assert 0 == machine.call("pfl", "stop").returncode
    assert 0 == machine.finish(clients[A], log=A, seconds=20)
    assert "stopped" == status(machine)["status"]
    assert doing(machine, B).startswith("silent (finish")

    own, other = (next(machine.home.glob(f"state/pfl/sites/*/{name}")) for name in (B, A))
    os.replace(own, machine.home / "kept")
    shutil.copytree(other, own)
    (own / "data.txt").unlink()
    wrong = machine.client(machine.home / B)
    assert 4 == machine.finish(wrong, log=B)
    assert f"holds the keys of the site {A}" in machine.said(B)
    shutil.rmtree(own)
    os.replace(machine.home / "kept", own)
    assert 0 == machine.finish(machine.client(machine.home / B), log=B)
    assert ["serving.safetensors"] == [file.name for file in own.glob("runs/*/serving/*")]
    assert 0 == machine.stop(server)
