"""Real processes that are killed, stopped and started again: the run goes on and ends in the bytes of a quiet one."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from pfl_server.store.journal import Journal
from tests.deploy.support.processes import Machine, write_site

A, B = "hospital_a", "hospital_b"


class Federation:
    """A coordinator and two sites of one machine, and what can happen to them."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.machine, self._words = Machine(folder / "machine"), words
        self.folders = [
            write_site(folder / "data" / site, samples=count, seed=count)
            for site, count in ((A, 60), (B, 52))
        ]
        self.clients: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: tuple[str, ...] = ()

    def start(self) -> None:
        """Everybody for the first time."""
        self.serve()
        for site in (A, B):
            self.enter(site)

    def serve(self) -> None:
        """Start the coordinator; the second time with the same command, at the address it had."""
        chosen = ("--method", "dualfed", "--backbone", "resnet8", "--set", "epochs=12")
        self.server = self.machine.server(*chosen, *self._words, *self._ports)
        self.wait(lambda: "listening" in self.machine.said("server"))
        found = self.machine.discovery()
        assert found is not None
        self._ports = ("--port", found["control"].rpartition(":")[2])

    def enter(self, site: str) -> None:
        """Start a site, for the first time or once more."""
        self.clients[site] = self.machine.client(next(f for f in self.folders if f.name == site))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """As the system would for want of memory: without a word."""
        process.kill()
        process.wait(10)

    def wait(self, event: Callable[[], bool]) -> None:
        """Wait for something while the coordinator lives."""
        self.machine.wait_for(event, self.server, "server", seconds=40)

    def wait_for_training(self, site: str, number: int) -> None:
        """Until a site has a round's download, all of it, and trains on it."""
        task = re.compile(rf"kind=train.* round={number}\b")
        self.wait(lambda: task.search(self.machine.said(site)) is not None)
        self.wait(lambda: any(self.has_all_of(file) for file in self.run_of(site).glob("downloads/*")))

    def has_all_of(self, download: Path) -> bool:
        """Whether a download is as long as the coordinator's file of the same digest, and no note says it is less."""
        as_long = 0 < size_of(download) == size_of(self.run / "shelf" / download.name)
        return as_long and not download.with_name(download.name + ".came").exists()

    def wait_for_upload(self, site: str, number: int) -> None:
        """Until a site has its round's update in the outbox and its vault in order."""
        key = f'"upload": "{number:06d}-1-train"'
        self.wait(lambda: key in (self.run_of(site) / "vault.json").read_text())

    def end(self) -> list[int]:
        """The sites' exit codes, each by itself."""
        return [self.machine.finish(client, log=site) for site, client in self.clients.items()]

    def run_of(self, site: str) -> Path:
        """A site's folder of the run."""
        return next(self.machine.home.glob(f"state/pfl/sites/*/{site}/runs/*"))

    @property
    def run(self) -> Path:
        """The coordinator's folder of the run."""
        return next((self.machine.home / "pfl-state" / "runs").iterdir())

    def rounds(self) -> list[tuple[object, ...]]:
        """What the journal says of each attempt."""
        journal = Journal(self.run / "journal.sqlite")
        found = [
            tuple(row[name] for name in ("round", "attempt", "counted", "losses")) for row in journal.rounds()
        ]
        journal.close()
        return found


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Callable[..., Federation]]:
    """Founds a federation whose processes end with the test."""
    founded: list[Federation] = []

    def begin(*words: str) -> Federation:
        founded.append(Federation(tmp_path, *words))
        founded[-1].start()
        return founded[-1]

    yield begin
    for federation in founded:
        federation.machine.end_all()


@pytest.mark.long  # test_three_ways.py kills at named lines, test_transfers.py in mid-transfer
def test_killed_at_every_turn(found: Callable[..., Federation], tmp_path: Path) -> None:
    """A site is killed in training and before its upload, the coordinator in mid-round: nothing differs in the end."""
    federation = found("--rounds", "4", "--quorum", "1")
    federation.wait_for_training(B, 2)
    federation.kill(federation.clients[B])
    federation.enter(B)
    federation.wait_for_training(B, 3)
    federation.server.send_signal(signal.SIGSTOP)
    federation.wait_for_upload(B, 3)
    federation.kill(federation.clients[B])
    federation.server.send_signal(signal.SIGCONT)
    federation.enter(B)
    federation.wait_for_training(A, 4)
    federation.kill(federation.server)
    federation.serve()
    assert [0, 0] == federation.end()
    assert [(number, 1, [A, B], {}) for number in (1, 2, 3, 4)] == federation.rounds()

    spec = RunSpec.from_json((federation.run_of(A) / "spec.json").read_text())
    given = {"method": "dualfed", "sites": 2, "state": tmp_path / "quiet" / "coordinator"}
    settings = settle(ServerSettings, given, what="test")
    quiet = simulate(settings, federation.folders, tmp_path / "quiet" / "sites", pinned=spec)
    assert tensors(quiet.coordinator / "checkpoints", expected=2) == tensors(
        federation.run / "checkpoints", expected=2
    )
    for site in (A, B):
        for folder, count in (("generations", 2), ("serving", 1)):
            undisturbed = tensors(quiet.sites[site] / folder, expected=count)
            assert undisturbed == tensors(federation.run_of(site) / folder, expected=count)


def test_a_site_that_is_gone(found: Callable[..., Federation]) -> None:
    """Its lease ends, the run goes on without it; when it comes back after the end, it gets its model."""
    federation = found("--rounds", "3", "--lease-seconds", "5", "--quorum", "0.5")
    federation.wait_for_training(B, 2)
    federation.kill(federation.clients.pop(B))
    assert [0] == federation.end()
    federation.wait(lambda: "run over" in federation.machine.said("server"))
    assert [(1, [A, B], {}), (2, [A], {B: "lease"}), (3, [A], {B: "lease"})] == [
        row[:1] + row[2:] for row in federation.rounds()
    ]
    assert [] == list(federation.run_of(B).glob("serving/*"))
    federation.enter(B)
    assert [0, 0] == federation.end()
    assert ["serving.safetensors"] == [file.name for file in federation.run_of(B).glob("serving/*")]
    assert 0 == federation.machine.stop(federation.server)


def size_of(file: Path) -> int:
    """Nothing, if it went away while it was looked at."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def tensors(folder: Path, *, expected: int) -> dict[str, bytes]:
    """The tensor files of a folder, without the serial in their names, which counts how often a task was done."""
    files = {
        re.sub(r"(-1)-\d+\.", r"\1.", file.name): file.read_bytes() for file in folder.glob("*.safetensors")
    }
    assert expected == len(files)
    return files
