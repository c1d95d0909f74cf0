"""Whole federations in one process, with real seals on both sides: the same bytes as in the open, and no leak."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from safetensors.numpy import load_file

from pfl_client.daemon.loop import Daemon
from pfl_client.envelopes.sealed import SealedEnvelopes
from pfl_client.trainer_process.api import DataFolder, Done, Job, Progress
from pfl_client.trainer_process.large_parcels import MESSAGE_LIMIT
from pfl_common.app.config import settle
from pfl_common.sealing import frame_cipher
from pfl_common.spec.messages import Blob, Offer, Receipt
from pfl_common.spec.run import ClientId, RunSpec
from pfl_deploy.simulation.loopback import LoopbackBench, LoopbackLink
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.envelopes import Letter
from pfl_server.envelopes.sealed import seal_with
from pfl_server.run.host import RunHost
from pfl_server.settings import ServerSettings
from pfl_server.sites.service import Service
from pfl_server.store.spool import Spool
from tests.common.sealing.members import Members
from tests.deploy.support.processes import write_site

METHODS = ("dualfed", "fedcac")
PERSONAL = {"dualfed": ("head_p.", "projector."), "fedcac": ("mask",)}
"""What must never be at the coordinator, not even in its checkpoints, by the beginning of its name."""
WINDOW = 24


@dataclass
class Ledger:
    """Each key and nonce that sealed something, and how often."""

    used: list[tuple[bytes, bytes]] = field(default_factory=list)
    opened: set[bytes] = field(default_factory=set)

    def cipher(self, key: bytes) -> Watched:
        """AES-GCM that is written down."""
        return Watched(self, key)


class Watched:
    """AES-GCM whose uses are written down."""

    def __init__(self, ledger: Ledger, key: bytes) -> None:
        self._ledger, self._key, self._cipher = ledger, key, AESGCM(key)

    def encrypt_into(self, nonce: bytes, *words: object) -> int:
        self._ledger.used.append((self._key, nonce))
        return self._cipher.encrypt_into(nonce, *words)

    def decrypt_into(self, nonce: bytes, *words: object) -> int:
        self._ledger.opened.add(self._key)
        return self._cipher.decrypt_into(nonce, *words)


@dataclass
class Canaries:
    """Bytes that must not be found below a folder: of updates outside the checkpoints, of personal tensors nowhere."""

    folder: Path
    updates: set[bytes] = field(default_factory=set)
    personal: set[bytes] = field(default_factory=set)
    leaks: set[tuple[str, str]] = field(default_factory=set)
    looked_at: set[tuple[object, ...]] = field(default_factory=set)

    def learn(self, update: bytes) -> None:
        """A plain update is about to be sealed."""
        self.updates |= set(windows(update, 8))

    def learn_personal(self, file: Path, names: tuple[str, ...]) -> None:
        """A site keeps these tensors for itself."""
        for name, value in load_file(file).items():
            if name.startswith(names):
                self.personal |= set(windows(value.tobytes(), 2))

    def look(self, *, again: bool = False) -> None:
        """Search the files that are new or changed since the last look, or all there are."""
        for path in sorted(self.folder.rglob("*")):
            try:
                found = path.stat()
                state = (path, found.st_ino, found.st_size, found.st_mtime_ns)
                if not path.is_file() or (state in self.looked_at and not again):
                    continue
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # a draft that has got its name meanwhile
            self.looked_at.add(state)
            wanted = self.personal if path.parent.name == "checkpoints" else self.personal | self.updates
            if any(needle in content for needle in wanted):
                self.leaks.add((path.parent.name, path.name))


def windows(raw: bytes, count: int) -> Iterator[bytes]:
    """A few stretches of a tensor's or parcel's bytes, none of which chance makes: enough different bytes in each."""
    step = max(WINDOW, len(raw) // count // 4 * 4)
    for at in range(0, len(raw) - WINDOW + 1, step):
        piece = raw[at : at + WINDOW]
        if len(set(piece)) > WINDOW // 2:
            yield piece


class WatchedLink(LoopbackLink):
    """Looks through the coordinator's folder after each parcel that has crossed."""

    def __init__(self, site: ClientId, service: Service, canaries: Canaries) -> None:
        super().__init__(site, service)
        self._canaries = canaries

    async def fetch(self, blob: Blob, into: Path, *, kind: str = "init", **about: object) -> None:
        await super().fetch(blob, into, kind=kind, **about)
        self._canaries.look()

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        receipt = await super().submit(offer, parcel)
        self._canaries.look()
        return receipt


class WatchedBench(LoopbackBench):
    """Shows each update and each personal state before anything else is done with it."""

    def __init__(self, turn: asyncio.Lock, canaries: Canaries, names: tuple[str, ...]) -> None:
        super().__init__(turn)
        self._canaries, self._names = canaries, names

    async def work(self, job: Job, progress: Progress) -> Done:
        done = await super().work(job, progress)
        if done.up is not None:
            self._canaries.learn(done.up.read_bytes() if isinstance(done.up, Path) else bytes(done.up))
            self._canaries.learn_personal(job.keep_as, self._names)
        return done


@dataclass
class Federation:
    """Data folders, and where a coordinator and its sites keep their state."""

    folder: Path
    method: str
    data: list[Path]

    def settings(self, where: str) -> ServerSettings:
        """Three rounds of two sites."""
        given = {
            "method": self.method,
            "sites": 2,
            "rounds": 3,
            "backbone": "mlp",
            "quorum": 1.0,
            "state": self.folder / where / "coordinator",
        }
        return settle(ServerSettings, given, what="test")

    def in_the_open(self) -> Result:
        """As `pfl simulate` plays it."""
        return simulate(self.settings("open"), self.data, self.folder / "open" / "sites")

    def sealed(self, spec: RunSpec) -> tuple[Path, Canaries]:
        """The same run, every parcel sealed; gives the run's folder and what was seen in the coordinator's."""
        return asyncio.run(self._play(spec))

    async def _play(self, spec: RunSpec) -> tuple[Path, Canaries]:
        members, settings = Members(self.folder / "federation"), self.settings("sealed")
        host = RunHost(settings, seal_with(members.authority, now=datetime.now(UTC)), pinned=spec)
        canaries, turn = Canaries(settings.state), asyncio.Lock()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(host.run())
                for folder in self.data:
                    daemon = Daemon(
                        DataFolder(folder, folder.name, device="cpu"),
                        link=WatchedLink(folder.name, host, canaries),
                        bench=WatchedBench(turn, canaries, PERSONAL[self.method]),
                        envelopes=SealedEnvelopes(members.keyring(folder.name)),
                        state=self.folder / "sealed" / "sites" / folder.name,
                    )
                    group.create_task(daemon.run())
        finally:
            host.runs.close()
        canaries.look(again=True)
        return settings.state / "runs" / spec.id, canaries

    def site(self, where: str, name: str, spec: RunSpec) -> Path:
        """A site's folder of the run."""
        return self.folder / where / "sites" / name / "runs" / spec.id


@pytest.fixture(params=METHODS)
def federation(request: pytest.FixtureRequest, tmp_path: Path) -> Federation:
    """A broadcast with much that stays at the sites, and a method that sends each site its own."""
    data = [
        write_site(tmp_path / "data" / "hospital_a", samples=24, size=12, seed=1),
        write_site(tmp_path / "data" / "hospital_b", samples=18, size=12, seed=2),
    ]
    return Federation(tmp_path, request.param, data)


@pytest.mark.parametrize("limit", [0, MESSAGE_LIMIT], ids=["by file", "in memory"])
def test_sealed_and_open_runs_end_alike_and_nothing_leaks(
    federation: Federation, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints and each site's own state are equal to the byte; at the coordinator lies nothing of an update."""
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", limit)
    alone, ledger = federation.in_the_open(), Ledger()
    with mock.patch.object(frame_cipher, "AESGCM", ledger.cipher):
        run, canaries = federation.sealed(alone.spec)

    assert tensors(alone.coordinator / "checkpoints") == tensors(run / "checkpoints")
    for folder in federation.data:
        mine = federation.site("sealed", folder.name, alone.spec)
        for part in ("generations", "serving"):
            assert tensors(alone.sites[folder.name] / part) == tensors(mine / part)
        assert [] == list((mine / "downloads").iterdir())

    # I7: every frame of the run under a pair of its own.
    assert len(ledger.used) == len(set(ledger.used)) > 0
    assert {key for key, _ in ledger.used} == ledger.opened, "each parcel was sealed for somebody"
    # I6 and I8.
    assert set() == canaries.leaks
    assert len(canaries.updates) > 20
    assert len(canaries.personal) > 5
    assert {"spool", "shelf", "checkpoints"} <= {path.parent.name for path, *_ in canaries.looked_at}


def test_the_search_finds_what_lies_open(federation: Federation) -> None:
    """In a run without seals the same search finds updates in spool and shelf: it can see."""
    canaries = Canaries(federation.settings("open").state)
    spool = []
    admit = Spool.admit

    def look(self: Spool, site: str, parcel: Path, offer: Offer, letter: Letter, watched: object) -> str:
        canaries.learn(parcel.read_bytes())
        name = admit(self, site, parcel, offer, letter, watched)
        canaries.look()
        spool.append(name)
        return name

    with mock.patch.object(Spool, "admit", look):
        federation.in_the_open()
    assert {("spool", f"{name}.raw") for name in spool} <= canaries.leaks


def tensors(folder: Path) -> dict[str, bytes]:
    """The tensor files of a folder by name."""
    found = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    assert found
    return found
