"""A real fleet and its training in one process, with honest sites around it and one that is hostile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from pfl_common.errors import Refused, RunFailed
from pfl_common.evaluation import vector
from pfl_common.spec.messages import OPENING, Assignment, Blob, Mark, Offer, Over, header_up
from pfl_common.spec.run import Kind, RunSpec
from pfl_server.run.training import Training
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.service import Incoming
from pfl_server.telemetry.event_log import Record
from tests.server.support.federation import DESCRIPTION, make_update, open_run, write_parcel

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
        hostile = asyncio.create_task(attack(self)) if attack else None
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


Attack: TypeAlias = Callable[[World], Awaitable[None]]


async def beat_for_ever(world: World) -> None:
    """Take each task and say each time that a little more is done."""
    while (assignment := await world.next_task(HOSTILE)) is not None:
        await beat_on(world, assignment)


async def beat_on(world: World, assignment: Assignment) -> None:
    """Say each time that a little more is done, as long as that is wanted."""
    done, wanted = assignment.blob.size, True
    while wanted:
        await asyncio.sleep(BEAT)
        done += 1
        wanted = world.fleet.heartbeat(HOSTILE, assignment.key, done)


async def ask_for_ever(world: World) -> None:
    """Ask for the same task again and again, and count from the beginning each time."""
    while (assignment := await world.next_task(HOSTILE)) is not None:
        world.fleet.heartbeat(HOSTILE, assignment.key, 0)
        await asyncio.sleep(BEAT)


async def open_for_ever(world: World) -> None:
    """Say for ever that the data are still being read."""
    while True:
        world.fleet.heartbeat(HOSTILE, OPENING, 0)
        await asyncio.sleep(BEAT)


async def trickle(world: World) -> None:
    """Send an upload byte by byte."""
    while (assignment := await world.next_task(HOSTILE)) is not None:
        with suppress(Refused):
            if assignment.task.kind is not Kind.TRAIN:
                await world.answer(HOSTILE, assignment)
                continue
            offer, _ = world.seal(HOSTILE, assignment)
            incoming = await world.fleet.offer(HOSTILE, offer)
            while assignment.key == getattr(await peek(world), "key", ""):
                incoming.came += 1
                await asyncio.sleep(BEAT)


async def peek(world: World) -> Assignment | Over | None:
    """What the hostile site is asked at this moment."""
    return await world.fleet.next_task(HOSTILE, (), wait=0)


async def hold_the_end(world: World) -> None:
    """Take part in all rounds, and never finish."""
    while (assignment := await world.next_task(HOSTILE)) is not None:
        if assignment.task.kind is Kind.FINISH:
            await beat_on(world, assignment)
        await world.answer(HOSTILE, assignment)


def decline(reason: str) -> Attack:
    """Decline each task at once."""

    async def act(world: World) -> None:
        while (assignment := await world.next_task(HOSTILE)) is not None:
            with suppress(Refused):
                await world.fleet.decline(HOSTILE, assignment.key, reason, "no")
            await asyncio.sleep(BEAT)

    return act


async def come_and_go(world: World) -> None:
    """Join, take the task, leave, and begin again."""
    while True:
        await world.fleet.join(HOSTILE, DESCRIPTION)
        await world.fleet.next_task(HOSTILE, (), wait=0.05)
        await world.fleet.leave(HOSTILE)
        await asyncio.sleep(BEAT)


HOLDING: dict[str, Attack] = {
    "rising progress": beat_for_ever,
    "the same task again": ask_for_ever,
    "reading data": open_for_ever,
    "a byte at a time": trickle,
    "holding the end": hold_the_end,
}
ENDING: dict[str, Attack] = {
    "declines": decline("disk_full"),
    "a policy": decline("policy"),
    "comes and goes": come_and_go,
}


async def play_or_fail(world: World, attack: Attack | None) -> str:
    """How the run ended; nothing if it did not fail."""
    try:
        await world.play(attack)
    except RunFailed as failed:
        return str(failed)
    return ""
