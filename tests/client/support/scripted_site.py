"""A site whose line and trainer are made here: they play a script and write down what was said."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pfl_client.connection.link import Announce, HandedIn, Marks
from pfl_client.daemon import heartbeat as heart
from pfl_client.daemon import loop as story
from pfl_client.daemon import retry
from pfl_client.daemon.loop import Daemon
from pfl_client.policy.policy_file import read as read_policy
from pfl_client.trainer_process.api import DataFolder, Done, Job, Progress
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import (
    OPENING,
    Assignment,
    Blob,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    Scores,
    header_down,
)
from pfl_common.spec.run import Description, Kind, Model, RunSpec, Task
from pfl_deploy.simulation.loopback import OpenEnvelopes

SITE = "hospital-a"
DESCRIPTION = Description((1, 4, 4), ("a", "b"), 8, warnings=("something is odd",))
MANIFEST = (Entry("encoder.weight", "float32", (2,)),)
SCORES: Scores = {"pre/test/combined": [3.0, 4.0, 0.75, 0.5625, 0.5]}
TOLD: Scores = {"told/loss": [1.0, 1.0, 1.0]}
BYTES = b"download"
FINISHED = Over("finished")


def pin(run: str = "run-1") -> RunSpec:
    """A run whose parcels have one tensor, as long as the bytes of a download here."""
    manifests = {f"{kind}/train/down": MANIFEST for kind in Kind} | {
        "init": MANIFEST,
        "train/train/up": MANIFEST,
    }
    return RunSpec(
        run,
        "fedavg",
        {},
        Model("mlp", (1, 4, 4), ("a", "b")),
        rounds=3,
        seed=7,
        roster=(SITE,),
        manifests=manifests,
    )


def assign(
    kind: Kind = Kind.TRAIN, number: int = 1, *, since: int = 0, drop: bool = False, run: str = "run-1"
) -> Assignment:
    """A task with its download."""
    task = Task(kind, number, 3, since=since, drop=drop)
    header = header_down(pin(run), task, state="hash")
    return Assignment(task, header, Blob(hashlib.sha256(BYTES).hexdigest(), len(BYTES)))


@dataclass
class Line:
    """A Link that plays its script and writes down what was said."""

    work: list[Assignment | Over | Exception | None]
    joins: list[Joined | Exception | None] = field(default_factory=list)
    troubles: dict[str, list[Exception]] = field(default_factory=dict)
    said: list[tuple[str, object]] = field(default_factory=list)
    marks: list[tuple[Mark, ...]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    beaten: asyncio.Event = field(default_factory=asyncio.Event)
    heard_opening: asyncio.Event = field(default_factory=asyncio.Event)
    left: Callable[[], Awaitable[None]] | None = None
    at_once: list[Assignment | Over | Exception | None] = field(default_factory=list)
    """What comes with the receipts of updates that are handed in with one call; none: by single calls."""

    def names(self) -> list[str]:
        """What was said, without the asking for work."""
        return [name for name, _ in self.said]

    def hear(self, name: str) -> list[object]:
        """All that was said under one name."""
        return [what for spoken, what in self.said if spoken == name]

    async def join(self, description: Description) -> Joined | None:
        self._say("join", description)
        answer = self.joins.pop(0) if self.joins else Joined(pin().to_json(), Blob("first", 5))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def next_task(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        self.marks.append(marks)
        answer = self.work.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def take_beside(self, blob: Blob, by: str = "") -> bytes:
        return b""

    async def fetch(self, blob: Blob, into: Path, *, kind: str = "init", **about: object) -> None:
        self._say("fetch", blob.digest[:5])
        self.kinds.append(kind)
        into.write_bytes(BYTES)

    async def hand_in(
        self, offer: Offer, parcel: Path, scores: Scores, *, marks: Marks, announce: Announce
    ) -> HandedIn | None:
        if not self.at_once:
            return None
        announce(lambda: self._say("list", offer.key))
        self._say("hand_in", (offer.key, parcel.read_bytes(), scores))
        self.marks.append(marks[0])
        answer = self.at_once.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return HandedIn(Receipt(offer.header.run, offer.key, SITE, offer.blob.digest), answer, 0.0)

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        self._say("submit", (offer.key, parcel.read_bytes()))
        return Receipt(offer.header.run, offer.key, SITE, offer.blob.digest)

    async def report(self, key: str, scores: Scores) -> None:
        self._say("report", (key, scores))

    async def decline(self, key: str, reason: str, words: str) -> None:
        self._say("decline", (key, reason, words))

    async def heartbeat(self, key: str, progress: int) -> bool:
        if key == OPENING:
            self.heard_opening.set()
        elif progress > len(BYTES):
            self.beaten.set()
        return True

    async def pause(self) -> None:
        self._say("pause", None)
        if self.left is not None:
            await self.left()

    async def leave(self) -> None:
        self._say("leave", None)
        if self.left is not None:
            await self.left()

    def _say(self, name: str, what: object) -> None:
        self.said.append((name, what))
        if self.troubles.get(name):
            raise self.troubles[name].pop(0)


@dataclass
class Trainer:
    """A Bench that writes what a trainer would, or meets the trouble it was given."""

    troubles: list[Exception] = field(default_factory=list)
    before: list[Exception] = field(default_factory=list)
    during: Callable[[Progress], Awaitable[None]] | None = None
    reading: asyncio.Event | None = None
    opened: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    began_with: list[str | None] = field(default_factory=list)
    closed: int = 0

    async def describe(self, folder: DataFolder) -> Description:
        if self.before:
            raise self.before.pop(0)
        return DESCRIPTION

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        assert init.read_bytes() == BYTES
        self.opened.append(RunSpec.from_json(spec).id)
        if self.reading is not None:
            await self.reading.wait()

    async def work(self, job: Job, progress: Progress) -> Done:
        self.jobs.append(job)
        self.began_with.append(job.kept.read_text() if job.kept else None)
        if self.troubles:
            raise self.troubles.pop(0)
        if self.during is not None:
            await self.during(progress)
        number = job.task.round
        if job.task.kind is not Kind.EVALUATE:
            job.keep_as.write_text(f"state after {number}")
        if job.serve_as is not None:
            job.serve_as.write_text("model")
        up = f"update {number}".encode() if job.task.kind is Kind.TRAIN and not job.task.drop else None
        return Done(dict(SCORES), {"loss": 1.0}, up)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(heart, "HEARTBEAT_SECONDS", 0.005)
    monkeypatch.setattr(story, "GOODBYE_SECONDS", 0.05)


def put_together(
    line: Line, trainer: Trainer, state: Path, *, stays: bool = False, tells: bool = True
) -> Daemon:
    """A site of these."""
    folder, open_ = DataFolder(state.parent / "data", SITE), OpenEnvelopes()
    return Daemon(folder, link=line, bench=trainer, envelopes=open_, state=state, stays=stays, tells=tells)


async def live(line: Line, trainer: Trainer, state: Path) -> Over:
    """A site's whole life; it says goodbye and ends its trainer however that life ends."""
    try:
        return await asyncio.wait_for(put_together(line, trainer, state).run(), 20)
    finally:
        assert "leave" == line.names()[-1]
        assert 1 == trainer.closed


def with_policy(line: Line, trainer: Trainer, state: Path, text: str) -> Daemon:
    """A site that keeps to a policy."""
    file = state.parent / "policy.toml"
    file.write_text(text)
    folder, policy = DataFolder(state.parent / "data", SITE), read_policy(file)
    return Daemon(folder, link=line, bench=trainer, envelopes=OpenEnvelopes(), state=state, policy=policy)
