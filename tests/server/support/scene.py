"""A fleet with its books and a clock that stands still, and the sites' side of each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.messages import Assignment, Blob, Mark, Offer, Receipt, SiteStatus
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.wire.convert import FRAME_BYTES
from pfl_server.sites.downloads import Downloads
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.service import Incoming
from pfl_server.store.round_base import Base
from pfl_server.store.run_store import Books
from tests.server.support.federation import build_header, make_update, open_run, write_parcel

TASK = Task(Kind.TRAIN, 1, 2)


class ClockFleet(Fleet):
    """A fleet whose clock stands still until a test moves it."""

    clock = 100.0

    def now(self) -> float:
        return self.clock


class Scene:
    """A fleet with its books, and the sites' side of each call."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        self.folder, self.spec = folder, spec
        self.jobs: list[asyncio.Task[str]] = []
        self.open()

    def open(self, *, resumed: bool = False) -> None:
        """Start the coordinator's side, for the first time or once more."""
        self.books: Books = open_run(self.folder, self.spec)
        books = self.books
        self.fleet = ClockFleet(books, resumed=resumed)
        self.downloads = Downloads(books, books.digest_after(0), Base(0, books.first))

    async def restart(self) -> None:
        """Kill the coordinator: whatever was in memory is gone."""
        await self.close()
        self.open(resumed=True)

    async def close(self) -> None:
        for job in self.jobs:
            job.cancel()
        await asyncio.gather(*self.jobs, return_exceptions=True)
        self.jobs.clear()
        self.books.journal.close()

    def line(self, site: str) -> SiteStatus:
        """What the status says of a site."""
        return next(line for line in self.fleet.status().sites if line.site == site)

    def ask(self, site: str = "a", task: Task = TASK) -> asyncio.Task[str]:
        """What training does: give a site a task."""

        async def prepare(asked: Task) -> Assignment:
            return await self.downloads.assignment(site, asked)

        self.jobs.append(asyncio.create_task(self.fleet.ask(site, task, prepare)))
        return self.jobs[-1]

    async def take(self, site: str = "a", marks: tuple[Mark, ...] = ()) -> Assignment:
        """What a site does: ask for work, and get some."""
        assignment = await self.fleet.next_task(site, marks, wait=10)
        assert isinstance(assignment, Assignment)
        return assignment

    def prepare_offer(self, site: str = "a", task: Task = TASK, *words: str) -> tuple[Offer, bytes]:
        """A site's update, ready to be offered."""
        file = self.folder / f"outbox-{site}"
        groups = write_parcel(file, self.spec, make_update(self.spec, site, *words))
        raw = file.read_bytes()
        header = build_header(self.spec, site, task, groups)
        return Offer(task.key, header, Blob(sha256(raw).hexdigest(), len(raw))), raw

    async def send(self, site: str, offer: Offer, raw: bytes) -> Receipt:
        """Offer, store all bytes frame by frame, get the receipt."""
        incoming = await self.fleet.offer(site, offer)
        assert isinstance(incoming, Incoming)
        with incoming.path.open("r+b") as file:
            file.seek(incoming.offset)
            for at in range(incoming.offset, len(raw), FRAME_BYTES):
                file.write(raw[at : at + FRAME_BYTES])
                if incoming.tap is not None:
                    incoming.tap(at, raw[at : at + FRAME_BYTES])
        return await self.fleet.stored(site, offer.key)


async def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        await call()
    return refused.value.code
