"""A small coordinator's desk that keeps everything in files of one folder, and remembers who said what."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from pathlib import Path

from pfl_common.errors import Refused
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Scores,
    SiteStatus,
)
from pfl_common.spec.run import ClientId, Description, Header, Kind, Task
from pfl_server.sites.service import Incoming

RUN = "run-1"
QUOTA = 64 << 20


class FileDesk:
    """Hands out what a test has laid on it; an upload is kept if its SHA-256 is the one offered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.desk = self
        """It is the Service too, until a test lays another desk here."""
        self.gathering = False
        self.joined: dict[ClientId, Description] = {}
        self.marks: dict[ClientId, tuple[Mark, ...]] = {}
        self.said: list[tuple[object, ...]] = []
        self.stopped = False
        self.sent: list[tuple[ClientId, str]] = []
        self.unfit = "classes"
        self.lingering: list[tuple[ClientId, str, float]] = []
        self.hung_up: list[tuple[ClientId, str]] = []
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.asked = asyncio.Event()
        self.verified = 0
        self.verifying = asyncio.Event()
        self.may_verify = asyncio.Event()
        self.may_verify.set()
        self.shown: list[tuple[int, int]] = []
        """Where what came of uploads began, and how long it was, as it was shown while it came."""
        self._work: dict[ClientId, asyncio.Queue[Assignment | Over]] = defaultdict(asyncio.Queue)
        self._offers: dict[tuple[ClientId, str], Offer] = {}
        self._receipts: dict[tuple[ClientId, str], Receipt] = {}

    async def remove(self, site: ClientId) -> None:
        """The operator has removed a site."""
        self.said.append(("remove", site))

    def lay(self, content: bytes) -> Blob:
        """Make bytes fetchable."""
        blob = blob_of(content)
        (self.folder / blob.digest).write_bytes(content)
        return blob

    def assign(self, site: ClientId, work: Assignment | Over) -> None:
        """Work for one site."""
        self._work[site].put_nowait(work)

    def kept(self, site: ClientId, key: str) -> bytes:
        """The bytes of an upload, whole or partial."""
        return self._path(site, key).read_bytes()

    async def join(self, site: ClientId, description: Description) -> Joined | None:
        if "horse" in description.classes:
            raise Refused(self.unfit, f"{site} has the class horse; the run has none: check --data")
        self.joined[site] = description
        return None if self.gathering else Joined('{"id":"run-1"}', self.lay(b"first model"))

    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float, before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        self.marks[site] = marks
        self.asked.set()
        try:
            async with asyncio.timeout(wait):
                return await self._work[site].get()
        except TimeoutError:
            return None

    def blob(self, site: str, digest: str) -> Path:
        path = self.folder / digest
        if not path.exists():
            raise Refused("unknown_blob", "no such bytes")
        return path

    def fetched(self, site: ClientId, digest: str) -> None:
        self.sent.append((site, digest))

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        receipt = self._receipts.get((site, offer.key))
        if receipt is not None:
            if receipt.digest != offer.blob.digest:
                raise Refused("different", f"another update is there for {offer.key}")
            return receipt
        if offer.blob.size > QUOTA:
            raise Refused("too_large", f"{offer.blob.size} bytes; expected: at most {QUOTA}")
        self._offers[site, offer.key] = offer
        path = self._path(site, offer.key)
        there = path.stat().st_size if path.exists() else 0
        return Incoming(path, there, offer.blob.size, tap=lambda at, came: self.shown.append((at, len(came))))

    async def stored(self, site: ClientId, key: str) -> Receipt:
        offer = self._offers[site, key]
        self.verified += 1
        self.verifying.set()
        await self.may_verify.wait()
        if blob_of(self.kept(site, key)) != offer.blob:
            self._path(site, key).unlink()
            raise Refused("digest", "other bytes than offered")
        self._receipts[site, key] = Receipt(RUN, key, site, offer.blob.digest)
        return self._receipts[site, key]

    async def report(self, site: ClientId, key: str, scores: Scores, *, alone: bool = True) -> None:
        self.said.append(("report", site, key, scores))

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        self.said.append(("decline", site, key, reason, words))

    async def linger(self, site: ClientId, key: str, *, seconds: float) -> None:
        self.lingering.append((site, key, seconds))
        try:
            await asyncio.wait_for(self.let_go.wait(), seconds)
        except TimeoutError:
            return
        except asyncio.CancelledError:
            self.hung_up.append((site, key))
            raise

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        self.said.append(("heartbeat", site, key, progress))
        return progress < 100

    def pause(self, site: ClientId) -> None:
        self.said.append(("pause", site))

    async def leave(self, site: ClientId) -> None:
        self.said.append(("leave", site))

    def status(self) -> RunStatus:
        sites = tuple(SiteStatus(site, "joined", 0.0) for site in sorted(self.joined))
        return RunStatus(RUN, "fedavg", "rounds", 1, 3, 1, sites=sites, scores={"pre/test": 0.5})

    def stop(self) -> None:
        self.stopped = True

    def _path(self, site: ClientId, key: str) -> Path:
        return self.folder / f"{site}-{key}.part"


def blob_of(content: bytes) -> Blob:
    """The name and size of bytes."""
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def train(blob: Blob, *, round: int = 1) -> Assignment:
    """A training task that begins with these bytes."""
    header = Header(RUN, round, 1, Kind.TRAIN, "train", "down", "coordinator", "fingerprint")
    return Assignment(Task(Kind.TRAIN, round, 3), header, blob)


def upload(site: ClientId, content: bytes, *, round: int = 1) -> Offer:
    """The offer of an update of these bytes."""
    header = Header(RUN, round, 1, Kind.TRAIN, "train", "up", site, "fingerprint", ("head",))
    return Offer(Task(Kind.TRAIN, round, 3).key, header, blob_of(content))
