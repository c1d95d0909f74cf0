"""Keeps the presence of each registered site: here, away and for how long, or left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from time import time
from typing import cast

import structlog

from pfl_common.identity.names import KEPT_IN_MEMORY
from pfl_common.spec.data_description import MOST_SAMPLES
from pfl_common.spec.messages import NOT_SINCE, Mark, SitePhase, SiteStatus, shorten
from pfl_common.spec.run import ClientId, Kind
from pfl_server.decisions.lease import Pace
from pfl_server.decisions.task_events import Answer, GivenUp
from pfl_server.sites.assignment import Assigned
from pfl_server.store.journal import Journal

log = structlog.get_logger("pfl.fleet")

FORGOTTEN_SECONDS = 7 * 24 * 3600.0
"""Nobody need see to the certificate of a site that was silent for so long."""
OPENING_LEASES = 20
"""So many leases in all a site may read its data while a task waits for it, however often it is started again."""
TEST_PARTS = 1000
"""A site measures at most so many times the samples it declared to train on, and a million in any case."""


@dataclass
class Member:
    """A registered site, as it was when last heard."""

    site: ClientId
    seen: float
    """When it was last heard; after a restart that of the restart, from which leases count."""
    heard: bool = True
    """Whether anything was heard of it in this life of the coordinator."""
    calls: int = 0
    """How often it was heard: the number of its last call."""
    gone: bool = False
    """The line of its last call was closed under it: it is away, although its lease goes on."""
    left_at: float = float("-inf")
    """When it said goodbye; with that it is not heard any more, whatever time that was."""
    goodbye: bool = False
    """Its goodbye is in the journal."""
    waiting: int = 0
    assigned: Assigned | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    given: tuple[Mark, ...] = ()
    """Its last updates that have a receipt, newest first."""
    warned: int = 0
    """The round for which it was already said that the site does not remember what it should."""
    warnings: tuple[str, ...] = ()
    """What it found odd about its own data."""
    removed: bool = False
    """The operator took it out: it is no candidate, and nobody waits for it."""
    trouble: str = ""
    """Why it declined its last task; nothing once it has answered one again."""
    declined: tuple[str, str] = ("", "")
    """The last task that it declined, and why."""
    text: str = ""
    """Its description of its data, as it lies in the journal."""
    pace: Pace | None = None
    """How fast it was with its last task that ended in an update."""
    finished: bool = False
    """It has the run's last model."""
    opened_seconds: float = 0.0
    """How long in all it has read its data while a task waited for it."""
    opened_at: float | None = None
    """When it said so last."""

    def hear(self, now: float) -> None:
        """It was heard."""
        self.seen, self.heard, self.gone = now, True, False
        self.calls += 1

    def finish(self, assigned: Assigned, end: Answer | GivenUp) -> None:
        """Take its task away. At once, not when `ask` wakes up: a site that asks again must not get a task that it has
        just answered.
        """
        if self.assigned is assigned:
            self.assigned = None
        if isinstance(end, Answer):
            self.trouble = ""
            self.finished = assigned.task.kind is Kind.FINISH
            if assigned.state.uploads:
                self.pace = assigned.state.pace or self.pace
                self.given = (Mark(assigned.task.round, assigned.task.attempt), *self.given[:1])

    def open_for(self, now: float, lease_seconds: float) -> bool:
        """It says that it reads its data; whether it has time left for that."""
        since = 0.0 if self.opened_at is None else min(now - self.opened_at, lease_seconds)
        self.opened_seconds, self.opened_at = self.opened_seconds + since, now
        return self.is_opening(now, lease_seconds)

    def is_opening(self, now: float, lease_seconds: float) -> bool:
        """Whether it has said so within a lease, and has time left for it."""
        if self.opened_at is None or now - self.opened_at > lease_seconds:
            return False
        return self.opened_seconds <= OPENING_LEASES * lease_seconds

    @property
    def most_samples(self) -> float:
        """Samples that it may have measured at most. Test parts are larger than training parts, but not by so much."""
        declared = _read_samples(self.text)
        return MOST_SAMPLES if declared is None else TEST_PARTS * max(declared, TEST_PARTS)

    def hang_up(self, call: int) -> None:
        """A line was closed under a call of the site; if it has called since, it is on another one."""
        self.gone = self.gone or self.calls == call

    def is_present(self, limit: float) -> bool:
        """Whether a call of it waits, or it was heard at this moment or later."""
        return bool(self.waiting) or self.seen >= limit

    @property
    def on_the_line(self) -> bool:
        """A call of it waits here, or it was heard and its line has not been closed since."""
        return bool(self.waiting) or (self.heard and not self.gone)

    @property
    def has_left(self) -> bool:
        """It said goodbye, and was not heard since."""
        return self.left_at > self.seen

    def status(self, now: float, *, started: float, here: bool, counted: int) -> SiteStatus:
        """Its line in the list of sites."""
        heard = self.left_at if self.has_left else max(self.seen, started)
        known = self.heard or self.has_left
        ago = 0.0 if self.waiting else max(0.0, now - heard) if known else NOT_SINCE
        doing, phase, state = self.describe(here=here), self.phase(here=here), "here" if here else "away"
        return SiteStatus(self.site, state, round(ago, 1), doing, phase, counted, self.warnings)

    def phase(self, *, here: bool) -> SitePhase:
        """What it does, in one word from a list."""
        if self.has_left:
            return "left"
        if not here:
            return "away"
        return "waiting" if self.assigned is None else self.assigned.state.stage

    def describe(self, *, here: bool) -> str:
        """What it does, in a few words for the list of sites, and what was the matter with it last."""
        if self.removed:
            return "removed by the operator"
        gone = self.gone and not here and not self.has_left
        if self.assigned is None:
            away = "away, its line is closed" if gone else "away"
            doing = "waiting" if self.waiting else "has left" if self.has_left else "" if here else away
        else:
            task = f"({self.assigned.task.kind} {self.assigned.task.round})"
            away = "line closed" if gone else "silent"
            doing = f"{self.assigned.state.stage if here else away} {task}"
        return f"{doing}; {self.trouble}" if self.trouble else doing


class Membership:
    """All registered sites of a run."""

    def __init__(
        self, journal: Journal, clock: Callable[[], float], *, lease_seconds: float, resumed: bool
    ) -> None:
        self._journal, self._clock, self._lease_seconds = journal, clock, lease_seconds
        # A restarted coordinator has seen nobody yet: everyone gets a lease's time to come back, and is not said to
        # be here before.
        self._started = clock()
        self._members = {
            site: Member(
                site,
                self._started,
                heard=not resumed,
                warnings=shorten(json.loads(description)["warnings"]),
                text=description,
            )
            for site, description in journal.sites().items()
        }
        self._ordered: tuple[Member, ...] = ()
        self._names: tuple[ClientId, ...] | None = None
        for site, at in journal.goodbyes().items():
            # But not these: they left on purpose, and nobody waits for them.
            member = self._members[site]
            member.seen, member.left_at = float("-inf"), self._started - max(0.0, time() - at)
            member.goodbye = True
        for site, at in journal.removals().items():
            if (taken_out := self._members.get(site)) is not None:
                taken_out.seen, taken_out.left_at = float("-inf"), self._started - max(0.0, time() - at)
                taken_out.removed = True
        for row in journal.rounds():
            if row["status"] == "committed":
                self._remember(row)

    def _remember(self, row: Mapping[str, object]) -> None:
        """Who was counted in a committed round."""
        counted = cast(list[ClientId], row["counted"])
        mark = Mark(cast(int, row["round"]), cast(int, row["attempt"]))
        for member in (self._members[site] for site in counted if site in self._members):
            member.given = (mark, *member.given[:1])

    def find(self, site: ClientId) -> Member | None:
        """A site, if it is registered."""
        return self._members.get(site)

    def declared(self, site: ClientId) -> int | None:
        """The training samples that a site declared when it joined; None if it told none. Any thread may ask."""
        member = self._members.get(site)
        return None if member is None else _read_samples(member.text)

    def __getitem__(self, site: ClientId) -> Member:
        return self._members[site]

    def __iter__(self) -> Iterator[Member]:
        if len(self._ordered) != len(self._members):
            # Sites come and are never forgotten.
            self._ordered = tuple(member for _, member in sorted(self._members.items()))
        return iter(self._ordered)

    def names(self) -> tuple[ClientId, ...]:
        """All registered sites that the operator has not taken out; the same tuple until that changes."""
        if self._names is None:
            self._names = tuple(member.site for member in self if not member.removed)
        return self._names

    def present(self) -> tuple[ClientId, ...]:
        """Sites heard within the time of a lease."""
        limit = self._clock() - self._lease_seconds
        return tuple(member.site for member in self if member.is_present(limit))

    def present_among(self, sites: Iterable[ClientId]) -> frozenset[ClientId]:
        """Those of some sites that are among those."""
        limit = self._clock() - self._lease_seconds
        found = ((site, self._members.get(site)) for site in sites)
        return frozenset(site for site, member in found if member is not None and member.is_present(limit))

    def is_present(self, member: Member) -> bool:
        """Whether one site is among those: asked for each site of a cohort, where all would be looked through."""
        return member.is_present(self._clock() - self._lease_seconds)

    def likely(self) -> tuple[ClientId, ...]:
        """Sites that are likely to come again: they have not said goodbye and were heard within days."""
        limit = self._clock() - FORGOTTEN_SECONDS
        return tuple(member.site for member in self if member.seen >= limit)

    def count(self) -> tuple[int, int, int]:
        """The numbers of sites that are here, that are away, and that have left."""
        here = self._here()
        left = sum(member.has_left for member in self if member.site not in here)
        return len(here), len(self._members) - len(here) - left, left

    def statuses(self, counted: Mapping[ClientId, int]) -> tuple[SiteStatus, ...]:
        """The list of sites, each with the number of rounds it was counted in."""
        here, now, started = self._here(), self._clock(), self._started
        return tuple(
            m.status(now, started=started, here=m.site in here, counted=counted.get(m.site, 0)) for m in self
        )

    def _here(self) -> set[ClientId]:
        """Who is said to be here. After a restart others are waited for too: they have a lease's time to be heard."""
        return {site for site in self.present() if self._members[site].on_the_line}

    def knows(self, site: ClientId, text: str) -> bool:
        """Whether a site is in the journal with just this description of its data."""
        member = self._members.get(site)
        return member is not None and member.text == text and not (member.goodbye or member.removed)

    def welcome(self, site: ClientId, warnings: tuple[str, ...], *, text: str = "") -> None:
        """A site has joined, for the first time or again."""
        member = self._members.get(site)
        if member is None or member.removed:
            self._names = None
        if member is None:
            member = self._members[site] = Member(site, self._clock())
        member.hear(self._clock())
        member.removed, member.goodbye = False, False
        member.warnings, member.text = shorten(warnings), text or member.text

    def hear(self, member: Member) -> None:
        """Note that a site was heard; a last word of one that was taken out brings it back no more."""
        if member.removed:
            return
        if member.goodbye:
            member.goodbye = False
            # It was started again before its goodbye came: that must not outlive a restart.
            self._journal.stay.soon(member.site).add_done_callback(_look_at_goodbye)
        member.hear(self._clock())

    def leave(self, member: Member, *, noted: bool = True) -> None:
        """A site has said goodbye; that of one which comes and goes all the time is not written down."""
        member.seen, member.left_at = float("-inf"), self._clock()
        if not noted:
            return
        member.goodbye = True
        # Not waited for: a site that ends has no time, and a lost goodbye looks like a silent site.
        self._journal.leave.soon(member.site, time()).add_done_callback(_look_at_goodbye)

    async def remove(self, member: Member) -> None:
        """The operator takes a site out: written down before it counts, since it must outlive a restart."""
        await self._journal.remove.soon(member.site, time())
        member.removed, member.seen, member.left_at = True, float("-inf"), self._clock()
        self._names = None
        member.news.set()

    @contextmanager
    def on_the_line(self, member: Member) -> Iterator[None]:
        """While a call of a site waits here the site is here; when its line closes meanwhile, it is away at once."""
        self.hear(member)
        call, member.waiting = member.calls, member.waiting + 1
        try:
            yield
            self.hear(member)
        except asyncio.CancelledError:
            member.hang_up(call)
            raise
        finally:
            member.waiting -= 1


@lru_cache(maxsize=KEPT_IN_MEMORY)
def _read_samples(text: str) -> int | None:
    """The training samples in a description as it lies in the journal."""
    said = json.loads(text).get("samples") if text else None
    return said if isinstance(said, int) else None


def _look_at_goodbye(writing: asyncio.Future[None]) -> None:
    """Log the failure of a write that nobody waited for."""
    if not writing.cancelled() and (error := writing.exception()) is not None:
        log.warning("a goodbye, or its end, was not written down until a restart", why=str(error))
