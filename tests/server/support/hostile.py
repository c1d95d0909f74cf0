"""A real fleet and its training in one process, with honest sites around it and one that is hostile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from pfl_common.errors import Refused, RunFailed
from pfl_common.evaluation import vector
from pfl_common.spec.messages import Assignment, Blob, Mark, Offer, Over, header_up
from pfl_common.spec.run import Kind, RunSpec
from pfl_server.run.training import Training
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.service import Incoming
from pfl_server.telemetry.event_log import Record
from tests.server.support.federation import DESCRIPTION, make_update, open_run, write_parcel
from tests.server.support.insiders import Attack

HOSTILE = "h"
BEAT = 0.005


@dataclass
class World:
    """One federation: its run, and what each site needs to take part in it."""

    folder: Path
    spec: RunSpec
    work_seconds: Mapping[str, float] = field(default_factory=dict)
    """How long a site trains; those that are not named take 0.02 s."""
    over_at: dict[str, float] = field(default_factory=dict)
    """When each site heard that the run is over."""

    def __post_init__(self) -> None:
        self.books, self.record = open_run(self.folder, self.spec), Record()
        self.fleet = Fleet(self.books, self.record)
        self.training = Training(self.books, self.fleet, tick=0.002, record=self.record)

    async def next_task(self, site: str) -> Assignment | None:
        """Wait for work; None when the run is over."""
        while True:
            committed = tuple(Mark(*place) for place in self.books.journal.committed().items())
            found = await self.fleet.next_task(site, committed, wait=5)
            if isinstance(found, Over):
                self.over_at[site] = asyncio.get_running_loop().time()
                return None
            if found is not None:
                return found

    async def work(self, site: str, assignment: Assignment) -> None:
        """Train for as long as this site does, with a beat now and then."""
        clock = asyncio.get_running_loop().time
        end, done = clock() + self.work_seconds.get(site, 0.02), 0
        while clock() < end:
            done += 10
            self.fleet.heartbeat(site, assignment.key, assignment.blob.size + done)
            await asyncio.sleep(BEAT)

    def seal(self, site: str, assignment: Assignment) -> tuple[Offer, bytes]:
        """An update that is what it should be."""
        task, file = assignment.task, self.folder / f"outbox-{site}"
        groups = write_parcel(file, self.spec, make_update(self.spec, site, task.round))
        raw, state = file.read_bytes(), assignment.header.state
        header = replace(header_up(self.spec, task, site, state=state), groups=groups)
        return Offer(task.key, header, Blob(sha256(raw).hexdigest(), len(raw))), raw

    async def answer(self, site: str, assignment: Assignment) -> None:
        """Hand in what was asked for."""
        key, task = assignment.key, assignment.task
        scores = {"pre/test/combined": vector(3, 4, 0.5)}
        await self.fleet.report(site, key, scores)
        if task.kind is Kind.TRAIN:
            offer, raw = self.seal(site, assignment)
            incoming = await self.fleet.offer(site, offer)
            if isinstance(incoming, Incoming):
                incoming.path.write_bytes(raw)
                await self.fleet.stored(site, key)

    async def be_honest(self, site: str) -> None:
        """Take each task, do it, hand it in."""
        while (assignment := await self.next_task(site)) is not None:
            await self.work(site, assignment)
            # A round that went on without it is no reason to stop.
            with suppress(Refused):
                await self.answer(site, assignment)

    async def play(self, attack: Attack | None = None) -> None:
        """All rounds, with every site but the hostile one honest; `attack` says what that one does for ever."""
        honest = [site for site in self.spec.roster if site != HOSTILE or attack is None]
        sites = [asyncio.create_task(self.be_honest(site)) for site in honest]
        hostile = asyncio.create_task(attack(InProcess(self, HOSTILE))) if attack else None
        try:
            await self.training.run()
            await asyncio.wait(sites, timeout=5)
        finally:
            for job in (*sites, *([hostile] if hostile else [])):
                job.cancel()
            await asyncio.gather(*sites, *([hostile] if hostile else []), return_exceptions=True)
            self.rows, self.courses = self.books.journal.rounds(), self.books.journal.course()
            self.books.journal.close()

    def round_seconds(self) -> list[float]:
        """How long each committed round took, abandoned attempts of it included."""
        ends = [0.0] * self.spec.rounds
        for course in self.courses:
            ends[course.round - 1] += course.ended - course.opened
        return ends

    def events(self) -> str:
        """What people are told, newest first."""
        return "\n".join(event.words for event in self.record.events.newest())


class InProcess:
    """A member of the run that may do as it likes, without a network."""

    pause = BEAT

    def __init__(self, world: World, site: str) -> None:
        self._world, self._fleet, self._site = world, world.fleet, site

    async def join(self) -> None:
        """Register, once more."""
        await self._fleet.join(self._site, DESCRIPTION)

    async def leave(self) -> None:
        """Say goodbye."""
        await self._fleet.leave(self._site)

    async def next_task(self) -> Assignment | None:
        """Wait for work; None when the run is over."""
        return await self._world.next_task(self._site)

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far it is; whether that is wanted."""
        return self._fleet.heartbeat(self._site, key, progress)

    async def decline(self, key: str, reason: str) -> None:
        """Say no."""
        await self._fleet.decline(self._site, key, reason, "no")

    async def answer(self, assignment: Assignment) -> None:
        """Hand in what was asked for, as an honest site does."""
        await self._world.answer(self._site, assignment)

    async def trickle(self, assignment: Assignment) -> None:
        """Send an upload byte by byte, as long as it is wanted."""
        offer, _ = self._world.seal(self._site, assignment)
        incoming = await self._fleet.offer(self._site, offer)
        assert isinstance(incoming, Incoming)
        while assignment.key == getattr(await self._fleet.next_task(self._site, (), wait=0), "key", ""):
            incoming.came += 1
            await asyncio.sleep(self.pause)


async def play_or_fail(world: World, attack: Attack | None) -> str:
    """How the run ended; nothing if it did not fail."""
    try:
        await world.play(attack)
    except RunFailed as failed:
        return str(failed)
    return ""
