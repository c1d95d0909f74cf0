"""The open tasks, at most one for each site, and the disk that was promised to their uploads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pfl_common.errors import Refused
from pfl_common.spec.run import ClientId
from pfl_server.decisions.task_events import Answer, Effect, Event, Excused, GivenUp, Took, Withdrawn
from pfl_server.sites.assignment import Assigned
from pfl_server.sites.membership import Member, Membership
from pfl_server.telemetry.counters import Meter


class OpenTasks:
    """Shared by the fleet and its intake of uploads."""

    def __init__(self, run: str, members: Membership, meter: Meter, now: Callable[[], float]) -> None:
        self._run, self._members, self._meter = run, members, meter
        self.now = now
        """The clock that leases are measured by."""
        self.refusals: Counter[str] = Counter()
        self._open: set[Assigned] = set()

    @contextmanager
    def opened(self, member: Member, assigned: Assigned) -> Iterator[None]:
        """While open, a site has this task, unless it is finished before or gets another."""
        member.assigned = assigned
        self._open.add(assigned)
        try:
            yield
        finally:
            self._open.discard(assigned)
            if member.assigned is assigned:
                member.assigned = None

    def member(self, site: ClientId) -> Member:
        """A site that has joined."""
        member = self._members.find(site)
        if member is None:
            raise self.refuse("not_joined", f"{site} has not joined run {self._run}: join first")
        return member

    def awaited(self, site: ClientId, key: str) -> Assigned:
        """A site's open task, if it has this key; an answer to any other comes too late."""
        member = self.member(site)
        self._members.hear(member)
        if member.assigned is None or member.assigned.task.key != key:
            raise self.refuse("late", f"nothing called {key} is awaited from {site} (any more)")
        return member.assigned

    def find(self, site: ClientId) -> Assigned | None:
        """A site's open task, if it has one."""
        member = self._members.find(site)
        return None if member is None else member.assigned

    def promised(self, but: Assigned) -> int:
        """Bytes of disk that were promised to the uploads of all tasks but one."""
        held = (one for one in self._open if self.find(one.client) is one)
        return sum(other.lacking for other in held if other is not but)

    def tell(self, assigned: Assigned, event: Event) -> list[Effect]:
        """Pass an event to a task and carry out its effects; those of the receipt are left to the intake."""
        if assigned.answer.cancelled():  # the caller has been stopped
            assigned.state.handle(Withdrawn())
        effects = assigned.state.handle(event)
        for effect in effects:
            match effect:
                case Took(done, seconds):
                    self._meter.took(done, seconds)
                case Answer() | GivenUp():
                    self._members[assigned.client].finish(assigned, effect)
                case _:
                    pass
            assigned.carry_out(effect)
        return effects

    def bear_with(self, site: ClientId) -> None:
        """Renew the lease of a site that was sent away for want of room here: its silence is not its fault."""
        if (assigned := self.find(site)) is not None:
            self.tell(assigned, Excused(self.now()))

    def refuse(self, code: str, words: str) -> Refused:
        """Count a refusal."""
        self.refusals[code] += 1
        return Refused(code, words)
