"""The coordinator's first Desk: gathers sites until a run can be frozen from their data."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import cast

import structlog
from pydantic import JsonValue

from pfl_common.errors import DataError, Refused
from pfl_common.spec.messages import (
    Assignment,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Scores,
    SitePhase,
    SiteStatus,
    Visited,
    shorten,
)
from pfl_common.spec.rules import RoundRules
from pfl_common.spec.run import ClientId, Description, Model
from pfl_common.spec.sample_form import Form
from pfl_server.decisions.model_choice import fits
from pfl_server.decisions.site_check import Verdict, check_site, judge
from pfl_server.decisions.withheld_descriptions import resolve
from pfl_server.sites.notices import UNFIT, Notices
from pfl_server.sites.service import Desk, Incoming

log = structlog.get_logger("pfl.reception")

_ASKED_FOR_SUMS = (
    "pictures are scaled by what all sites say (--normalise agreed), and this site has told no sums over its own; what "
    "to do: a pfl-client of this release tells them by itself"
)
JOIN_WAIT, LONGEST_JOIN_WAIT = 5.0, 20.0
"""Seconds a joining site is held before it is told to ask again; the longest is less than it waits for any answer."""
MOST_ASKING = 500
"""Sites that ask again in a second: of more that wait each is held for longer."""
FEW, LOOK_SECONDS = 100, 1e-4
"""Who goes through all guests at each of their calls has thousands to go through hundreds of times a second: of more
than a few guests so many seconds for each lie between two looks.
"""


@dataclass(frozen=True)
class Rules:
    """The conditions sites must meet before a run begins."""

    classes: tuple[str, ...] = ()
    """The operator's own list; empty: the sites' names make it."""
    vocabulary: tuple[str, ...] = ()
    """The same for the words of texts."""
    form: Form = field(default_factory=Form)
    """What the operator says that samples are."""
    fewest_sites: int = 1
    """How many have to tell a word or a category."""
    image_size: bool = False
    """The operator names the size of the run's pictures."""
    sums: bool = False
    """Sites tell sums over their training pictures: the run's scaling is agreed from them."""
    model: Model | None = None
    """The network and input of the run that is to go on; None: they are agreed with the sites."""
    begins_from: str = ""
    """That run's name."""
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
    """A Desk for the time before a run: it may answer "not yet". What waits here when the run is frozen is answered by
    the run's own Desk.
    """

    def __init__(
        self,
        method: str,
        notices: Notices | None = None,
        *,
        wanted: Mapping[str, JsonValue] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._method, self._notices = method, notices or Notices()
        self._wanted, self._rules = dict(wanted or {}), rules or Rules()
        self._lease = float(cast(float, self._wanted.get("lease_seconds", RoundRules.lease_seconds)))
        self._gathered: dict[ClientId, Guest] = {}
        self._asked: set[ClientId] = set()
        """Sites that were asked for sums."""
        self._judged: Mapping[ClientId, Description] | None = None
        self._verdict = Verdict()
        self._arrival = asyncio.Event()
        self._open = asyncio.Event()
        self._looked = asyncio.Event()
        self._next: Desk | None = None
        """Who answers the calls that waited here when the run was frozen."""

    async def gather(self, count: int) -> Mapping[ClientId, Description]:
        """Wait until enough sites are here whose data go together; a site that does not fit the others is sent away."""
        # A site that asks for work now is of another run: told so, or it would wait for us as we wait for it.
        self._looked.set()
        while True:
            self._arrival.clear()
            enough = len(self._gathered) >= count
            here = {site: self._gathered[site].description for site in self._here()} if enough else {}
            await self._judge(here, count)
            if len(self._verdict.fitting) >= count and not self._verdict.hindrance:
                return {site: here[site] for site in self._verdict.fitting}
            await self._arrival.wait()
            if (guests := len(self._gathered)) > FEW:
                await asyncio.sleep(guests * LOOK_SECONDS)

    async def _judge(self, here: Mapping[ClientId, Description], count: int) -> None:
        if here == self._judged:
            return
        before, self._judged, verdict = self._verdict.hindrance, here, Verdict()
        if len(here) >= count:
            # Sites name their classes: thousands of them are compared where no call waits for it.
            rules = self._rules
            verdict = await asyncio.to_thread(
                judge,
                here,
                wanted=count,
                classes=rules.classes,
                words=rules.vocabulary,
                fewest_sites=rules.fewest_sites,
            )
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
            self._notices.events.add(f"the run does not begin: {hindrance}", "error")
            for guest in self._gathered.values():
                guest.news.set()

    def open(self, desk: Desk) -> None:
        """The run is frozen: what waits here is answered by its Desk, and no other call comes here any more."""
        self._next = desk
        self.drain()

    def end(self, over: Over) -> None:
        """There will be no run: what waits here is told so."""
        self.drain()

    def drain(self) -> None:
        """No site is kept waiting any more."""
        self._looked.set()
        self._open.set()
        for guest in self._gathered.values():
            guest.news.set()

    # -- what the sites call, through a transport

    async def join(self, site: ClientId, description: Description) -> Joined | Gathering | None:
        """Register; wait a little for the run to be frozen."""
        try:
            with self._notices.joining(site, description):
                return await self._join(site, description)
        except Refused as refused:
            if refused.code in UNFIT:
                self._gathered.pop(site, None)
                # It may come back as it was: then it is judged, and told, again.
                self._judged = None
                self._arrival.set()
            raise

    async def _join(self, site: ClientId, description: Description) -> Joined | Gathering | None:
        if not self._open.is_set():
            description = self._resolve(site, description)
            self._check(site, description)
            if self._rules.sums and description.kind == "image" and description.moments is None:
                return await self._ask_for_sums(site)
            guest = await self._hold(site, description)
            if guest.odd:
                raise Refused("shape", guest.odd)
            if not self._open.is_set():
                words = (self._verdict.hindrance, *self._verdict.remarks)
                return Gathering(words) if self._verdict.hindrance else None
        self._notices.check_not_ended(site)
        return None if self._next is None else await self._next.join(site, description)

    def _resolve(self, site: ClientId, description: Description) -> Description:
        """A description with names for what a site's policy hashes."""
        rules, model = self._rules, self._rules.model
        classes, settled = (rules.classes, rules.image_size) if model is None else (model.classes, True)
        return resolve(site, description, classes=classes, image_size=settled)

    def _check(self, site: ClientId, description: Description) -> None:
        """Refuse a site that cannot take part, by what the operator listed or by the run that is to go on."""
        rules = self._rules
        if rules.model is None:
            check_site(site, description, classes=rules.classes, words=rules.vocabulary, form=rules.form)
            return
        try:
            fits(description, rules.model, site)
        except Refused as refused:
            raise Refused(
                refused.code,
                f"{refused.words}; this run begins with the models of {rules.begins_from}, whose classes and input "
                "stay; what to do: bring the data folder in line, or ask for a run without --begin-from",
            ) from None

    async def _ask_for_sums(self, site: ClientId) -> Gathering:
        """One of an earlier release does not know the question, and asks again at once: it is held for a while."""
        if site in self._asked:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._open.wait(), JOIN_WAIT)
        self._asked.add(site)
        return Gathering((_ASKED_FOR_SUMS,), sums=True)

    async def visit(self, site: ClientId) -> Visited | None:
        """There is no state before the run; wait a little for it to be frozen."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._open.wait(), JOIN_WAIT)
        self._notices.check_not_ended(site)
        return None if self._next is None else await self._next.visit(site)

    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float, before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        """While a restarted coordinator still reads its books: nothing yet."""
        try:
            await asyncio.wait_for(self._looked.wait(), wait)
        except TimeoutError:
            return None
        if self._next is None:
            raise _not_begun()
        return await self._next.next_task(site, marks, wait=wait, before=before)

    def blob(self, site: ClientId, digest: str) -> Path:
        """Nothing lies here."""
        raise _not_begun()

    def fetched(self, site: ClientId, digest: str) -> None:
        """Nothing lies here."""

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """No update is awaited."""
        raise _not_begun()

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """No update is awaited."""
        raise _not_begun()

    async def report(self, site: ClientId, key: str, scores: Scores, *, alone: bool = True) -> None:
        """No evaluation is awaited."""
        raise _not_begun()

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        """No site has a task."""
        raise _not_begun()

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        """No site is at work."""
        raise _not_begun()

    async def linger(self, site: ClientId, key: str, *, seconds: float) -> None:
        """No site is at work."""
        raise _not_begun()

    def pause(self, site: ClientId) -> None:
        """A site is stopped and will come back."""
        if (guest := self._gathered.get(site)) is not None:
            guest.gone = True
            self._arrival.set()

    async def leave(self, site: ClientId) -> None:
        """A site goes before the run."""
        if self._gathered.pop(site, None) is not None:
            self._notices.events.came(site, "left")
            self._arrival.set()
        self._notices.left(site)

    async def remove(self, site: ClientId) -> None:
        """The operator takes a site out before the run: nobody waits for it."""
        if self._gathered.pop(site, None) is not None:
            self._notices.events.add(f"{site} was removed by the operator", "warning")
            self._arrival.set()
        self._notices.left(site)

    # -- what others see

    def status(self) -> RunStatus:
        """Who has come so far, and what keeps the run from beginning."""
        here, now = set(self._here()), monotonic()
        guests = sorted(self._gathered.items())
        sites = tuple(_describe(site, guest, now, here=site in here) for site, guest in guests)
        rounds = cast(int, self._wanted.get("rounds", 0))
        words = "" if self._open.is_set() else self._verdict.hindrance
        seen = RunStatus(
            "", self._method, "gathering", 0, rounds, 0, sites=sites, spec=self._wanted, words=words
        )
        return self._notices.add_to(seen)

    def heard(self) -> tuple[int, int, int]:
        """How many of the registered sites are here, how many are away, and how many have said goodbye."""
        here = len(self._here())
        return here, len(self._gathered) - here, 0

    async def _hold(self, site: ClientId, description: Description) -> Guest:
        """While a site's call waits here it is here, and for a lease after: it calls again at once. When its line
        closes under the call it is away.
        """
        guest = self._gathered.get(site)
        if guest is None:
            self._notices.events.came(site, "joined")
            guest = self._gathered[site] = Guest(description, monotonic())
            self._notices.gathered(site)
        if guest.description != description:
            guest.description, guest.odd = description, ""
        guest.waiting += 1
        guest.news.clear()
        self._arrival.set()
        try:
            if not guest.odd:
                with suppress(TimeoutError):
                    await asyncio.wait_for(guest.news.wait(), self._join_wait)
            guest.gone = False
        except asyncio.CancelledError:
            guest.gone = guest.waiting == 1
            self._arrival.set()
            raise
        finally:
            guest.waiting, guest.heard = guest.waiting - 1, monotonic()
        return guest

    @property
    def _join_wait(self) -> float:
        return max(JOIN_WAIT, min(LONGEST_JOIN_WAIT, len(self._gathered) / MOST_ASKING))

    def _here(self) -> list[ClientId]:
        limit = monotonic() - self._lease
        return sorted(
            site
            for site, guest in self._gathered.items()
            if guest.waiting or (guest.heard >= limit and not guest.gone and not guest.odd)
        )


def _not_begun() -> Refused:
    return Refused("not_joined", "the run has not begun: join first")


def _describe(site: ClientId, guest: Guest, now: float, *, here: bool) -> SiteStatus:
    ago = 0.0 if guest.waiting else round(now - guest.heard, 1)
    phase: SitePhase = "waiting" if here else "away"
    doing = "away, its line is closed" if guest.gone and not guest.waiting else phase
    warnings = shorten(guest.description.warnings)
    return SiteStatus(site, "here" if here else "away", ago, doing, phase, warnings=warnings)
