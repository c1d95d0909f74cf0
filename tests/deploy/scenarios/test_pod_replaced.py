"""A pod is replaced in mid-round, as the manifests would have it: SIGTERM, then a new process on the same volume.

What a pod has besides its volume is gone with it: home, temporary files, the coordinator's file for its user. A site
has its join file, which names one address, and finds the new coordinator there.
"""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import Machine, write_site

A, B = "hospital_a", "hospital_b"
ROUNDS, HIT = 3, 2
GRACE = {"coordinator": 60, "site": 30}
"""Seconds until a pod is killed; `test_kubernetes.py` compares them with the manifests."""
WORDS = ("--method", "dualfed", "--backbone", "resnet8", "--set", "epochs=12", "--rounds", str(ROUNDS))
PATIENT = ("--quorum", "1", "--lease-seconds", "120")


class Pod:
    """One process with a home of its own."""

    def __init__(self, home: Path, program: str, log: str) -> None:
        self.machine, self._program, self.log = Machine(home), program, log
        self.process: subprocess.Popen[bytes]

    def start(self, *words: str | Path) -> Pod:
        """The container's command."""
        self.process = self.machine.start(self._program, *words, log=self.log)
        return self

    def wait(self, event: Callable[[], bool]) -> None:
        """Wait for something while it lives."""
        self.machine.wait_for(event, self.process, self.log)

    def said(self) -> str:
        """Its log."""
        return self.machine.said(self.log)

    def end(self, grace: float) -> int:
        """What the kubelet does: SIGTERM, and SIGKILL after the grace period, which would be the exit code here."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.machine.finish(self.process, log=self.log, seconds=grace)
        assert time.monotonic() - began < grace
        return code


class Cluster:
    """Volumes, invitations and an address that last; pods that do not."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pods = folder, list[Pod]()
        self.data = {
            site: write_site(folder / "data" / site, samples=count, seed=count)
            for site, count in ((A, 60), (B, 52))
        }
        self.volume = folder / "volumes" / "coordinator"
        self._address: tuple[str, ...] = ("--port", "0", "--enrol-port", "0")
        self.coordinator: Pod
        self.sites: dict[str, Pod] = {}

    def place_coordinator(self) -> None:
        """A new coordinator, on its volume and at its address."""
        self.coordinator = pod = self._pod("pfl-server", "coordinator")
        pod.start(*WORDS, *PATIENT, "--state", self.volume, "--http-port", "0", *self._address)
        pod.wait(lambda: pod.machine.discovery() is not None)
        found = pod.machine.discovery() or {}
        port, enrol_port = (found[name].rpartition(":")[2] for name in ("control", "enrolment"))
        self._address = ("--port", port, "--enrol-port", enrol_port)

    def invite(self, *sites: str) -> None:
        """What an operator does with `kubectl exec` and a Secret."""
        for site in sites:
            said = self.coordinator.machine.call("pfl", "invite", site, "--out", self._folder)
            assert 0 == said.returncode, said.stderr

    def place_site(self, site: str) -> None:
        """A new site, on its volume, with its Secret."""
        where = ("--data", self.data[site], "--join", self._folder / f"{site}.join")
        self.sites[site] = self._pod("pfl-client", site).start(*where, "--state", self.volume_of(site))

    def volume_of(self, site: str) -> Path:
        """A site's volume."""
        return self._folder / "volumes" / site

    def run_of(self, site: str) -> Path:
        """A site's folder of the run."""
        return next(self.volume_of(site).glob(f"*/{site}/runs/*"))

    @property
    def run(self) -> Path:
        """The coordinator's folder of the run."""
        return next((self.volume / "runs").iterdir())

    def ask(self, question: str) -> list[tuple[object, ...]]:
        """What the journal on the volume says."""
        with closing(
            sqlite3.connect(f"{(self.run / 'journal.sqlite').as_uri()}?mode=ro", uri=True)
        ) as journal:
            return journal.execute(question).fetchall()

    def wait_for_training(self, site: str) -> None:
        """Until a site trains in the round that is to be disturbed, and its download is all there."""
        task = re.compile(rf"kind=train.* round={HIT}\b")
        pod = self.sites[site]
        pod.wait(lambda: task.search(pod.said()) is not None)
        pod.wait(lambda: any(self._whole(file) for file in self.run_of(site).glob("downloads/*")))

    def assert_open(self) -> None:
        """The round is under way and this very attempt is not decided."""
        asked = f"select attempt, status from attempt where round = {HIT}"
        assert [(1, "open")] == self.ask(asked)

    def end(self) -> list[int]:
        """The sites' exit codes, each by itself."""
        return [pod.machine.finish(pod.process, log=pod.log) for pod in self.sites.values()]

    def remove(self) -> None:
        """Whatever still runs is ended."""
        for pod in self._pods:
            pod.machine.end_all()

    def _pod(self, program: str, log: str) -> Pod:
        self._pods.append(Pod(self._folder / "pods" / f"{log}-{len(self._pods)}", program, log))
        return self._pods[-1]

    def _whole(self, download: Path) -> bool:
        sizes = []
        for file in (download, self.run / "shelf" / download.name):
            try:
                sizes.append(file.stat().st_size)
            except FileNotFoundError:
                return False
        # Written over an old file, it has its length from the beginning, and a note of how far it is.
        return sizes[0] == sizes[1] and not download.with_name(download.name + ".came").exists()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A federation in its second round."""
    cluster = Cluster(tmp_path)
    try:
        cluster.place_coordinator()
        cluster.invite(A, B)
        for site in (A, B):
            cluster.place_site(site)
        for site in (A, B):
            cluster.wait_for_training(site)
        yield cluster
    finally:
        cluster.remove()


def test_pods_are_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """SIGTERM to a site in mid-training, then to the coordinator in the same round: each ends with 0 in its grace
    period; its successor does the same task again, or goes on with the same attempt.
    """
    cluster.assert_open()
    assert 0 == cluster.sites[B].end(GRACE["site"])
    cluster.assert_open()
    assert [] == cluster.ask(f"select site from receipt where round = {HIT} and site = '{B}'")
    cluster.place_site(B)
    cluster.wait_for_training(B)
    cluster.assert_open()
    assert 0 == cluster.coordinator.end(GRACE["coordinator"])
    cluster.assert_open()
    cluster.place_coordinator()
    assert_nothing_was_lost(cluster, tmp_path)


def test_a_lost_volume(cluster: Cluster, tmp_path: Path) -> None:
    """The folders of the backup alone bring the federation back: its sites come without a new invitation."""
    assert 0 == cluster.coordinator.end(GRACE["coordinator"])
    for site in (A, B):
        assert 0 == cluster.sites[site].end(GRACE["site"])
    lost = cluster.volume.rename(tmp_path / "lost")
    cluster.volume.mkdir()
    for name in ("federation", "invitations"):
        shutil.copytree(lost / name, cluster.volume / name)
    cluster.place_coordinator()
    for site in (A, B):
        cluster.place_site(site)
    assert [0, 0] == cluster.end()
    assert ROUNDS == len(cluster.ask("select round from attempt where status = 'committed'"))


def assert_nothing_was_lost(cluster: Cluster, folder: Path) -> None:
    """The run ends, each round in its first attempt with both sites, in the bytes of the undisturbed run."""
    assert [0, 0] == cluster.end()
    assert 0 == cluster.coordinator.end(GRACE["coordinator"])
    rounds = [(number, 1, "committed") for number in range(1, ROUNDS + 1)]
    assert rounds == cluster.ask("select round, attempt, status from attempt order by round, attempt")
    assert 2 * ROUNDS == len(cluster.ask("select distinct round, site from receipt"))

    spec = RunSpec.from_json((cluster.run_of(A) / "spec.json").read_text())
    given = {"method": "dualfed", "sites": 2, "state": folder / "alone" / "coordinator"}
    settings = settle(ServerSettings, given, what="test")
    alone = simulate(settings, list(cluster.data.values()), folder / "alone" / "sites", pinned=spec)
    assert tensors(alone.coordinator / "checkpoints", expected=2) == tensors(
        cluster.run / "checkpoints", expected=2
    )
    for site in (A, B):
        for name, count in (("generations", 2), ("serving", 1)):
            undisturbed = tensors(alone.sites[site] / name, expected=count)
            assert undisturbed == tensors(cluster.run_of(site) / name, expected=count)


def tensors(folder: Path, *, expected: int) -> dict[str, bytes]:
    """The tensor files of a folder, without the serial in their names, which counts how often a task was done."""
    files = {
        re.sub(r"(-1)-\d+\.", r"\1.", file.name): file.read_bytes() for file in folder.glob("*.safetensors")
    }
    assert expected == len(files)
    return files
