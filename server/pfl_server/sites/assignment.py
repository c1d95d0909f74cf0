"""One task at one site, and how long the site may stay silent about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from pfl_common.spec.messages import NOT_SINCE, Assignment, Mark, Offer, SitePhase, SiteStatus
from pfl_common.spec.run import ClientId, Header, Kind, Task
from pfl_server.sites.service import Incoming

Stage: TypeAlias = Literal["called", "working", "uploading", "drawn"]
"""How far a site was with its task when it was lost; `drawn`: to drop out."""


class SiteLost(Exception):
    """A site will not answer a task; the reason is one word from a fixed list, or "refused:" and a code."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.stage: Stage = "called"
        """How far it was."""
        super().__init__(reason)


@dataclass
class Errand:
    """A task on its way to one site and back."""

    client: ClientId
    task: Task
    prepare: Callable[[Task], Awaitable[Assignment]]
    answer: asyncio.Future[str]
    renewed: float
    """When the site was last seen to get on with it."""
    handed: bool = False
    progress: int = -1
    offer: Offer | None = None
    incoming: Incoming | None = None
    header: Header | None = None
    """What was said of its download; the update refers to the same shared state."""
    digest: str = ""
    """The name of its download, until the site has it."""
    turned: float | None = None
    """When the site went from one phase to the next, if that was seen."""
    received: int = 0
    reserved: int = 0
    """Bytes that its upload lacked on the disk when it was offered."""
    preparing: int = 0
    """Calls of the site that wait for its download to be made: no time of these is the site's."""
    verifying: bool = False
    spooled: str = ""
    """The name of its update in the spool, once all of it has verified."""
    promised: bool = False
    """Its receipt is being written down: from here on nobody can give it up."""

    async def make(self, since: int, now: Callable[[], float]) -> Assignment:
        """Its download. A reply of many models takes its time, which no site's lease is charged for."""
        self.preparing += 1
        try:
            return await self.prepare(replace(self.task, since=since))
        finally:
            self.preparing -= 1
            self.renewed = now()

    def renew(self, progress: int, now: float) -> None:
        """A lease is renewed by progress only: a site that hangs but still sends heartbeats is given up."""
        if progress > self.progress:
            self.progress, self.renewed = progress, now

    def arriving(self, now: float) -> None:
        """Bytes that come in are progress too."""
        size = self.incoming.reached if self.incoming else 0
        if size > self.received:
            self.received, self.renewed = size, now

    def turn(self, now: float) -> float | None:
        """A phase ends now; how long it was, if its beginning was seen."""
        began, self.turned = self.turned, now
        return None if began is None else now - began

    @property
    def stage(self) -> Literal["called", "working", "uploading"]:
        """How far the site is."""
        return "uploading" if self.incoming is not None else "working" if self.handed else "called"

    @property
    def lacking(self) -> int:
        """Bytes of disk that were promised to its upload and are not taken yet. What was there at its beginning is
        written over first.
        """
        coming = self.incoming
        return self.reserved if coming is None else min(self.reserved, max(0, coming.size - coming.reached))

    @property
    def uploads(self) -> bool:
        """Only training ends in an upload; the other kinds end with their report."""
        return self.task.kind is Kind.TRAIN


@dataclass
class Place:
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
    waiting: int = 0
    errand: Errand | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    given: tuple[Mark, ...] = ()
    """Its last updates that have a receipt, newest first."""
    warned: int = 0
    """The round for which it was already said that the site does not remember what it should."""
    warnings: tuple[str, ...] = ()
    """What it found odd about its own data."""
    trouble: str = ""
    """Why it declined its last task; nothing once it has answered one again."""

    def hear(self, now: float) -> None:
        """It was heard."""
        self.seen, self.heard, self.gone = now, True, False
        self.calls += 1

    def hang_up(self, call: int) -> None:
        """A line was closed under a call of the site; if it has called since, it is on another one."""
        self.gone = self.gone or self.calls == call

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
        return "waiting" if self.errand is None else self.errand.stage

    def describe(self, *, here: bool) -> str:
        """What it does, in a few words for the list of sites, and what was the matter with it last."""
        gone = self.gone and not here and not self.has_left
        if self.errand is None:
            away = "away, its line is closed" if gone else "away"
            doing = "waiting" if self.waiting else "has left" if self.has_left else "" if here else away
        else:
            task = f"({self.errand.task.kind} {self.errand.task.round})"
            doing = f"{self.errand.stage} {task}" if here else f"{'line closed' if gone else 'silent'} {task}"
        return f"{doing}; {self.trouble}" if self.trouble else doing
