"""The coordinator's first Desk: gathers sites, and passes calls on to the fleet once a run is frozen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, time
from typing import cast

import structlog
from pydantic import JsonValue

from pfl_common.errors import DataError, Refused
from pfl_common.files.full import is_full
from pfl_common.spec.messages import (
    Assignment,
    Gathering,
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
    shorten,
)
from pfl_common.spec.rules import RoundRules
from pfl_common.spec.run import ClientId, Description
from pfl_server.decisions.site_check import Verdict, check_site, judge
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.service import Incoming
from pfl_server.store.disk_wait import Room
from pfl_server.telemetry.event_log import Record
from pfl_server.telemetry.rejections import readable

log = structlog.get_logger("pfl.reception")

JOIN_WAIT = 5.0
"""Seconds a joining site is held before it is told to ask again."""

MOST_REFUSED = 50
"""Sites that were not taken are told apart up to here; invitations bound how many there can be."""
UNFIT = ("classes", "shape")
"""Refusals of a site's data: a person at the site has to act."""


@dataclass(frozen=True)
class Rules:
    """The conditions sites must meet before a run begins."""

    classes: tuple[str, ...] = ()
    """The operator's own list; empty: the sites' names make it."""
    vocabulary: tuple[str, ...] = ()
    """The same for the words of texts."""
    all_here: bool = False
    """Nobody else will come, as in a simulation: what keeps the run from beginning is an error."""


@dataclass
class Guest:
    """A site that has described its data before there is a run."""

    description: Description
    heard: float
    waiting: int = 0
    """How many of its calls wait here."""
    gone: bool = False
    """The line of its last call was closed while that waited."""
    odd: str = ""
    """Why it does not fit the others: it is told so, and goes."""
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Reception:
    """A Desk for the time before a run: it may answer "not yet"."""

    def __init__(
        self,
        method: str,
        room: Room | None = None,
        *,
        record: Record | None = None,
        wanted: Mapping[str, JsonValue] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._method, self._room = method, room or Room(Path())
        self._events, self._wanted = (record or Record()).events, dict(wanted or {})
        self._lease = float(cast(float, self._wanted.get("lease_seconds", RoundRules.lease_seconds)))
        self._rules = rules or Rules()
        self._gathered: dict[ClientId, Guest] = {}
        self._judged: Mapping[ClientId, Description] | None = None
        self._verdict = Verdict()
        self._refused: dict[ClientId, str] = {}
        self._noted: dict[ClientId, tuple[str, ...]] = {}
        self._arrival = asyncio.Event()
        self._open = asyncio.Event()
        self._looked = asyncio.Event()
        self._fleet: Fleet | None = None
        self._ended = self._why = ""
        self._untold: set[ClientId] = set()
        self._all_told = asyncio.Event()
        self.stop_asked = asyncio.Event()

    async def gather(self, count: int) -> Mapping[ClientId, Description]:
        """Wait until enough sites are here whose data go together; a site that does not fit the others is sent away."""
        # Whoever asks for work now is of another run: told so, or it would wait for us as we wait for it.
        self._looked.set()
        while True:
            self._arrival.clear()
            here = {site: self._gathered[site].description for site in self._here()}
            await self._judge(here, count)
            if len(self._verdict.fitting) >= count and not self._verdict.hindrance:
                return {site: here[site] for site in self._verdict.fitting}
            await self._arrival.wait()

    async def _judge(self, here: Mapping[ClientId, Description], count: int) -> None:
        if here == self._judged:
            return
        before, self._judged, verdict = self._verdict.hindrance, here, Verdict()
        if len(here) >= count:
            # Sites name their classes: thousands of them are compared where no call waits for it.
            own = {"classes": self._rules.classes, "words": self._rules.vocabulary}
            verdict = await asyncio.to_thread(judge, here, wanted=count, **own)
        self._verdict = verdict
        for site, words in verdict.odd.items():
            # It may have gone, or come back mended, while it was judged.
            if (guest := self._gathered.get(site)) is not None and guest.description is here[site]:
                guest.odd = words
                guest.news.set()
        if (hindrance := self._verdict.hindrance) and hindrance != before:
            if self._rules.all_here:
                raise DataError(hindrance)
            log.error("the run does not begin", why=hindrance)
            self._events.add(f"the run does not begin: {hindrance}", "error")
            for guest in self._gathered.values():
                guest.news.set()

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
        self._events.add(f"run {status}: {words}", level)
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

    async def join(self, site: ClientId, description: Description) -> Joined | Gathering | None:
        """Register; wait a little for the run to be frozen. The operator sees too why a site is not taken."""
        self._note_warnings(site, description)
        try:
            answer = await self._join(site, description)
        except Refused as refused:
            if refused.code in UNFIT:
                self._gathered.pop(site, None)
                # It may come back as it was: then it is judged, and told, again.
                self._judged = None
                self._arrival.set()
                if site in self._refused or len(self._refused) < MOST_REFUSED:
                    self._refused[site] = readable(refused.words)
            raise
        self._refused.pop(site, None)
        return answer

    async def _join(self, site: ClientId, description: Description) -> Joined | Gathering | None:
        if self._fleet is None and not self._open.is_set():
            check_site(site, description, classes=self._rules.classes, words=self._rules.vocabulary)
            guest = await self._hold(site, description)
            if guest.odd:
                raise Refused("shape", guest.odd)
            if not self._open.is_set():
                words = (self._verdict.hindrance, *self._verdict.remarks)
                return Gathering(words) if self._verdict.hindrance else None
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

    async def linger(self, site: ClientId, key: str, *, seconds: float) -> None:
        """Hold a site's call while it is at work."""
        await self._running().linger(site, key, seconds=seconds)

    def pause(self, site: ClientId) -> None:
        """A site is stopped and will come back."""
        if self._fleet is not None:
            self._fleet.pause(site)
        elif (guest := self._gathered.get(site)) is not None:
            guest.gone = True
            self._arrival.set()

    async def leave(self, site: ClientId) -> None:
        """A site goes, before or during the run."""
        if self._gathered.pop(site, None) is not None and self._fleet is None:
            self._events.left(site)
            self._arrival.set()
        self._tell(site)
        if self._fleet:
            await self._fleet.leave(site)

    def status(self) -> RunStatus:
        """The run at a glance; before it begins, who has come so far."""
        seen = self._fleet.status() if self._fleet is not None else self._status_before()
        return replace(
            seen,
            status=self._ended or seen.status,
            words=self._why or self._room.words or seen.words or self._hindrance(),
            refused=dict(sorted(self._refused.items())),
            now=time(),
            events=self._events.newest(),
        )

    def _hindrance(self) -> str:
        return "" if self._open.is_set() else self._verdict.hindrance

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

    async def _hold(self, site: ClientId, description: Description) -> Guest:
        """While a site's call waits here it is here, and for a lease after: it calls again at once. When its line
        closes under the call it is away.
        """
        guest = self._gathered.get(site)
        if guest is None:
            self._events.add(f"{site} joined")
            guest = self._gathered[site] = Guest(description, monotonic())
        if guest.description != description:
            guest.description, guest.odd = description, ""
        guest.waiting += 1
        guest.news.clear()
        self._arrival.set()
        try:
            if not guest.odd:
                with suppress(TimeoutError):
                    await asyncio.wait_for(guest.news.wait(), JOIN_WAIT)
            guest.gone = False
        except asyncio.CancelledError:
            guest.gone = guest.waiting == 1
            self._arrival.set()
            raise
        finally:
            guest.waiting, guest.heard = guest.waiting - 1, monotonic()
        return guest

    def _note_warnings(self, site: ClientId, description: Description) -> None:
        """What a site found odd about its own data is the operator's concern too."""
        warnings = shorten(description.warnings)
        if self._noted.get(site, ()) != warnings:
            for words in warnings:
                log.warning("a site's data", site=site, warning=words)
        self._noted[site] = warnings

    def _here(self) -> list[ClientId]:
        limit = monotonic() - self._lease
        return sorted(
            site
            for site, guest in self._gathered.items()
            if guest.waiting or (guest.heard >= limit and not guest.gone and not guest.odd)
        )

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
        for guest in self._gathered.values():
            guest.news.set()

    @contextmanager
    def _roomy(self, site: ClientId) -> Iterator[None]:
        """While open, site and operator are told of a full disk. A site that is sent away for it is not silent."""
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
            raise Refused(
                "no_room", "the coordinator's disk is full; its operator has to make room"
            ) from None

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
    doing = "away, its line is closed" if guest.gone and not guest.waiting else phase
    warnings = shorten(guest.description.warnings)
    return SiteStatus(site, "here" if here else "away", ago, doing, phase, warnings=warnings)
