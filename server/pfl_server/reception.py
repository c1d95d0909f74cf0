"""The coordinator's desk from its first minute: gathers sites until the fleet of a frozen run answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, time
from typing import cast

from pydantic import JsonValue

from pfl_common.errors import Refused
from pfl_common.messages import (
    Assignment,
    Joined,
    Level,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Scores,
    SitePhase,
    SiteStatus,
)
from pfl_common.run import ClientId, Description
from pfl_server.desk import Incoming
from pfl_server.events import Record
from pfl_server.fleet import Fleet
from pfl_server.room import Room, is_full

JOIN_WAIT = 5.0
"""Seconds a joining site is held before it is told to ask again."""


SILENT_SECONDS = 15.0
"""The usual lease: a site that is silent for so long is away, unless the run's own lease is told."""


@dataclass
class Guest:
    """A site that has said what its data look like, before there is a run."""

    description: Description
    heard: float
    waiting: int = 0
    """How many of its calls wait here."""


class Reception:
    """A Desk that can say "not yet"."""

    def __init__(
        self,
        method: str,
        room: Room | None = None,
        *,
        record: Record | None = None,
        wanted: Mapping[str, JsonValue] | None = None,
    ) -> None:
        self._method, self._room = method, room or Room(Path())
        self._events, self._wanted = (record or Record()).events, dict(wanted or {})
        self._lease = float(cast(float, self._wanted.get("lease_seconds", SILENT_SECONDS)))
        self._gathered: dict[ClientId, Guest] = {}
        self._arrival = asyncio.Event()
        self._open = asyncio.Event()
        self._looked = asyncio.Event()
        self._fleet: Fleet | None = None
        self._ended = self._why = ""
        self._untold: set[ClientId] = set()
        self._all_told = asyncio.Event()
        self.stop_asked = asyncio.Event()

    async def gather(self, count: int) -> Mapping[ClientId, Description]:
        """Wait until so many sites are here that have said what their data look like."""
        # Whoever asks for work now is of another run: told so, or it would wait for us as we wait for it.
        self._looked.set()
        while len(here := self._here()) < count:
            self._arrival.clear()
            await self._arrival.wait()
        return {site: self._gathered[site].description for site in here}

    def open(self, fleet: Fleet) -> None:
        """The run is frozen: from here on the fleet answers."""
        self._fleet = fleet
        fleet.on_stop = self.stop_asked.set
        self._begin()

    def fail(self, words: str) -> None:
        """The run cannot begin, or cannot go on: every site is told why."""
        self._end("failed", words, level="error")

    def call_off(self, words: str) -> None:
        """There will be no run, as its operator wants it: every site is told so."""
        self._end("stopped", words, level="info")

    def _end(self, status: str, words: str, *, level: Level) -> None:
        self._ended, self._why = status, words
        self._events.add(f"{status}: {words}", level)
        self._untold = set(self._gathered)
        self._all_told.clear()
        if self._fleet is not None:
            self._fleet.end(Over(status, words))
        self._begin()

    async def farewell(self, seconds: float) -> None:
        """After a failure: wait until the sites that had come have heard of it, but no longer than this."""
        if self._untold:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_told.wait(), seconds)

    def drain(self) -> None:
        """No site is kept waiting any more."""
        self._begin()

    async def join(self, site: ClientId, description: Description) -> Joined | None:
        """Register; wait a little for the run to be frozen."""
        if self._fleet is None:
            try:
                with self._received(site, description):
                    await asyncio.wait_for(self._open.wait(), JOIN_WAIT)
            except TimeoutError:
                return None
        if self._ended:
            self._tell(site)
            raise Refused("run_failed", self._why)
        with self._roomy(site):
            return None if self._fleet is None else await self._fleet.join(site, description)

    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float
    ) -> Assignment | Over | None:
        """Work for this site; while a restarted coordinator still reads its books: nothing yet."""
        if self._fleet is None:
            try:
                await asyncio.wait_for(self._looked.wait(), wait)
            except TimeoutError:
                return None
        with self._roomy(site):
            return await self._running().next_task(site, marks, wait=wait)

    def blob(self, digest: str) -> Path:
        """The file with these bytes."""
        return self._running().blob(digest)

    def fetched(self, site: ClientId, digest: str) -> None:
        """A site has been sent the last of these bytes."""
        if self._fleet is not None:
            self._fleet.fetched(site, digest)

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """Reserve room for an upload."""
        with self._roomy(site):
            answer = await self._running().offer(site, offer)
        if isinstance(answer, Receipt):
            self._room.relieve()
        return answer

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """An upload is complete."""
        with self._roomy(site):
            receipt = await self._running().stored(site, key)
        self._room.relieve()
        return receipt

    async def report(self, site: ClientId, key: str, scores: Scores) -> None:
        """Take an evaluation."""
        with self._roomy(site):
            await self._running().report(site, key, scores)

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        """A site will not do a task."""
        await self._running().decline(site, key, reason, words)

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        """A site is at work."""
        return self._running().heartbeat(site, key, progress)

    async def leave(self, site: ClientId) -> None:
        """A site goes, before or during the run."""
        if self._gathered.pop(site, None) is not None and self._fleet is None:
            self._events.left(site)
        self._tell(site)
        if self._fleet:
            await self._fleet.leave(site)

    def status(self) -> RunStatus:
        """The run at a glance; before it begins, who has come so far."""
        seen = self._fleet.status() if self._fleet is not None else self._status_before()
        return replace(
            seen,
            status=self._ended or seen.status,
            words=self._why or self._room.words or seen.words,
            now=time(),
            events=self._events.newest(),
        )

    @property
    def ended(self) -> str:
        """`failed` or `stopped` if the run came to its end here and not by itself, else nothing."""
        return self._ended

    def heard(self) -> tuple[int, int, int]:
        """How many of the registered sites are here, how many are away, and how many have said goodbye."""
        if self._fleet is not None:
            return self._fleet.heard()
        here = len(self._here())
        return here, len(self._gathered) - here, 0

    @contextmanager
    def _received(self, site: ClientId, description: Description) -> Iterator[None]:
        """While a site's call waits here it is here, and for a lease after: it calls again at once."""
        guest = self._gathered.get(site)
        if guest is None:
            self._events.add(f"{site} joined")
            guest = self._gathered[site] = Guest(description, monotonic())
        guest.description, guest.waiting = description, guest.waiting + 1
        self._arrival.set()
        try:
            yield
        finally:
            guest.waiting, guest.heard = guest.waiting - 1, monotonic()

    def _here(self) -> list[ClientId]:
        limit = monotonic() - self._lease
        return sorted(site for site, guest in self._gathered.items() if guest.waiting or guest.heard >= limit)

    def _status_before(self) -> RunStatus:
        here, now = set(self._here()), monotonic()
        guests = sorted(self._gathered.items())
        sites = tuple(_describe(site, guest, now, here=site in here) for site, guest in guests)
        rounds = cast(int, self._wanted.get("rounds", 0))
        return RunStatus("", self._method, "gathering", 0, rounds, 0, sites=sites, spec=self._wanted)

    def stop(self) -> None:
        """End in good order."""
        self.stop_asked.set()

    def _begin(self) -> None:
        self._looked.set()
        self._open.set()

    @contextmanager
    def _roomy(self, site: ClientId) -> Iterator[None]:
        """While open, a full disk is said to the site, which comes again, and to the operator; a site that is sent
        away for that is not silent.
        """
        try:
            yield
        except Exception as error:
            lacking = error.words if isinstance(error, Refused) and error.code == "no_room" else ""
            if not lacking and not is_full(error):
                raise
            self._room.lack(lacking)
            if self._fleet is not None:
                self._fleet.bear_with(site)
            if lacking:
                raise
            words = "the coordinator's disk is full; its operator has to make room"
            raise Refused("no_room", words) from None

    def _tell(self, site: ClientId) -> None:
        self._untold.discard(site)
        if not self._untold:
            self._all_told.set()

    def _running(self) -> Fleet:
        if self._fleet is None:
            raise Refused("not_joined", "the run has not begun: join first")
        return self._fleet


def _describe(site: ClientId, guest: Guest, now: float, *, here: bool) -> SiteStatus:
    ago = 0.0 if guest.waiting else round(now - guest.heard, 1)
    phase: SitePhase = "waiting" if here else "away"
    return SiteStatus(site, "here" if here else "away", ago, phase, phase)
