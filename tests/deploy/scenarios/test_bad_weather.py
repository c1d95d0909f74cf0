"""Real processes in bad weather: full disks, a coordinator elsewhere, a dead site, a folder that is not one's own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from pfl_common.identity import Authority, Keyring
from tests.deploy.support.processes import Machine, write_site

A, B = "hospital_a", "hospital_b"
GUEST, OLD_GUEST = "guest", "old-guest"

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
        # With quorum 1 the other one waits for the one that gives up: what the first says is what is wrong.
        assert 0 == machine.finish(client, log=name), machine.said(name)
        assert "the coordinator is at another address now" in machine.said(name)
    assert "run resumed" in machine.said("again")
    assert 0 == machine.stop(server)


def test_a_stranger_where_the_coordinator_was(machine: Stormy, tmp_path: Path) -> None:
    """A killed coordinator's ports may go to another federation: sites that were answered before say so once and look
    on. A start meanwhile ends: for good if the site was never let in, to be tried again if it was.
    """
    words = ("--method", "fedavg", "--backbone", "resnet8", "--rounds", "12", "--quorum", "1")
    server = machine.server(*words)
    for name in (GUEST, OLD_GUEST):
        assert 0 == machine.call("pfl", "invite", name, "--out", machine.home).returncode
    keep_certificate(machine, OLD_GUEST)
    gone = machine.discovery()
    assert gone is not None
    clients = {name: machine.client(machine.home / name) for name in (A, B)}
    machine.wait_for(lambda: "round=2" in machine.said("server"), server, "server")
    server.kill()
    server.wait(10)

    elsewhere = Machine(tmp_path / "elsewhere", machine.running)
    ports = [gone[name].rpartition(":")[2] for name in ("control", "enrolment")]
    typed = ("--port", ports[0], "--enrol-port", ports[1], "--http-port", "0")
    stranger = elsewhere.start("pfl-server", *typed, log="stranger")
    elsewhere.wait_for(lambda: elsewhere.discovery() is not None, stranger, "stranger")
    for name, client in clients.items():
        machine.wait_for(partial(has_met_a_stranger, machine, name), client, name)
    for name, code in ((GUEST, 2), (OLD_GUEST, 75)):
        said = machine.call("pfl-client", "--data", machine.home / A, "--join", machine.home / f"{name}.join")
        assert code == said.returncode, said.stderr
        assert "is not of our federation" in said.stderr

    server = machine.server(*words, log="again")
    for name, client in clients.items():
        assert 0 == machine.finish(client, log=name), machine.said(name)
        assert 1 == machine.said(name).count("something else answers in the coordinator's place")
        assert "the coordinator is at another address now" in machine.said(name)
    assert "run resumed" in machine.said("again")
    assert 0 == machine.stop(server)
    assert 0 == elsewhere.stop(stranger)


def has_met_a_stranger(machine: Machine, name: str) -> bool:
    """Whether a site has seen a certificate of another federation."""
    return "is not of our federation" in machine.said(name)


def keep_certificate(machine: Machine, name: str) -> None:
    """A site's keys as they lie there when it was let in before."""
    authority = Authority.open(machine.home / "pfl-state" / "federation")
    site = machine.home / "state" / "pfl" / "sites" / authority.federation_id / name
    site.mkdir(parents=True, mode=0o700)
    keyring = Keyring.open(site / "keys")
    keyring.store(authority.sign_site(keyring.csr(name), name, now=datetime.now(UTC)), authority.ca_pem)


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
