"""The sites of a run as they were last heard: who is here, who is away and for how long, who has left."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pfl_common.spec.messages import NOT_SINCE, Mark, SitePhase, SiteStatus
from pfl_common.spec.run import ClientId
from pfl_server.decisions.task_events import Answer, GivenUp
from pfl_server.sites.assignment import Assigned


@dataclass
class Member:
    """A registered site, as it was last heard."""

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
    assigned: Assigned | None = None
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

    def finish(self, assigned: Assigned, end: Answer | GivenUp) -> None:
        """Its task is over, at once and not when `ask` wakes up: a site that asks again must not be given what it has
        just answered.
        """
        if self.assigned is assigned:
            self.assigned = None
        if isinstance(end, Answer):
            self.trouble = ""
            if assigned.state.uploads:
                self.given = (Mark(assigned.task.round, assigned.task.attempt), *self.given[:1])

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
        return "waiting" if self.assigned is None else self.assigned.state.stage

    def describe(self, *, here: bool) -> str:
        """What it does, in a few words for the list of sites, and what was the matter with it last."""
        gone = self.gone and not here and not self.has_left
        if self.assigned is None:
            away = "away, its line is closed" if gone else "away"
            doing = "waiting" if self.waiting else "has left" if self.has_left else "" if here else away
        else:
            task = f"({self.assigned.task.kind} {self.assigned.task.round})"
            doing = (
                f"{self.assigned.state.stage} {task}"
                if here
                else f"{'line closed' if gone else 'silent'} {task}"
            )
        return f"{doing}; {self.trouble}" if self.trouble else doing
