"""All sites of a run as the coordinator sees them: who is present, what each was asked, what came back.

Two sides meet here: `training` asks (`ask`, `present`), and the transports call what the sites call
(`service.Desk`). Everything runs on one event loop, so there are no locks; files and arithmetic go to threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from pfl_common import evaluation
from pfl_common.spec.messages import (
    DECLINES,
    OPENING,
    Assignment,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Scores,
    Visited,
    shorten,
)
from pfl_common.spec.rules import ALL
from pfl_common.spec.run import ClientId, Description, Kind, Task
from pfl_server.decisions.lease import Lease, Pace
from pfl_server.decisions.model_choice import fits
from pfl_server.decisions.task_events import Excused, Fetched, Lost, Progressed, Reported
from pfl_server.decisions.withheld_descriptions import resolve
from pfl_server.sites import remembered_rounds
from pfl_server.sites.assignment import Assigned, Prepare, SiteLost, assign
from pfl_server.sites.changes_since_begin import DataWatch
from pfl_server.sites.full_disk import tells_full_disk
from pfl_server.sites.membership import Member, Membership
from pfl_server.sites.notices import Notices
from pfl_server.sites.open_tasks import OpenTasks
from pfl_server.sites.service import Incoming
from pfl_server.sites.uploads import Intake
from pfl_server.sites.visits import Visits
from pfl_server.telemetry.event_log import Record

if TYPE_CHECKING:
    from pfl_server.store.run_store import Books

log = structlog.get_logger("pfl.fleet")

LONGEST_WORDS = 200
TRANSFER_LEASES = 20
"""So many leases a download or an upload may take, however fast the site's last one was; never more than a round."""


class Fleet:
    """The Desk of one run."""

    def __init__(
        self,
        books: Books,
        record: Record | None = None,
        notices: Notices | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        self._record = record or Record()
        self.notices = notices or Notices(events=self._record.events)
        self.spec, self._books = books.spec, books
        self._data = DataWatch(books.spec, self._record.events)
        self._members = Membership(
            books.journal, self.now, lease_seconds=books.spec.lease_seconds, resumed=resumed
        )
        # From memory: each update that comes is held to it, and a journal that writes would be waited for.
        books.spool.terms.declared = self._members.declared
        self._over: Over | None = None
        self._released: Over | None = None
        """What sites are told that have finished while others have not."""
        self.tasks = OpenTasks(books.spec.id, self._members, self._record.meter, self.now)
        self._begun_with = max(books.journal.committed(), default=0) + 1
        """The first round of this life."""
        self._intake, self._visits = Intake(books, self.tasks), Visits(books)
        self.status_line: Callable[[], RunStatus] | None = None
        self.took_part: Counter[ClientId] = Counter()
        """In how many rounds each site was counted, as training sees it."""
        self.warnings: tuple[str, ...] = ()
        """What is odd about the sites' classes."""

    # -- what training calls

    def roster(self) -> tuple[ClientId, ...]:
        """All registered sites, by name."""
        return self._members.names()

    def present(self) -> tuple[ClientId, ...]:
        """Sites heard within the time of a lease."""
        return self._members.present()

    def present_among(self, sites: Iterable[ClientId]) -> frozenset[ClientId]:
        """Those of some sites that are present: a round asks fifty, where ten thousand may be registered."""
        return self._members.present_among(sites)

    async def ask(self, client: ClientId, task: Task, prepare: Prepare) -> str:
        """Give a site a task; gives the id of its update in the spool, or raises SiteLost."""
        member = self._members[client]
        if member.removed:
            raise SiteLost("removed")
        # A receipt of a former life is of the round that was open then; later rounds are opened in this one.
        earlier = task.kind is Kind.TRAIN and task.round <= self._begun_with
        if earlier and (held := await _find_held(self._books, client, task)):
            return held
        assigned = assign(client, task, prepare, lease=self._lease(member, task))
        with self.tasks.opened(member, assigned):
            member.news.set()
            try:
                return await assigned.answer
            finally:
                assigned.letter = None

    def _lease(self, member: Member, task: Task) -> Lease:
        """The lease of a new task, measured by how the site did the one before."""
        past = member.pace if task.kind is Kind.TRAIN else None
        renewed = self.now() if self._members.is_present(member) else member.seen
        return Lease(renewed, past=past, transfer_seconds=self._transfer_seconds(past))

    def _transfer_seconds(self, past: Pace | None) -> float:
        seconds = TRANSFER_LEASES * self.spec.lease_seconds
        usual = (
            self.spec.round_seconds if past is None else max(seconds, TRANSFER_LEASES * past.upload_seconds)
        )
        return min(usual, self.spec.round_seconds)

    def is_opening(self, client: ClientId) -> bool:
        """Whether a site still reads its data before its task, within the time it has for that."""
        member = self._members[client]
        if member.assigned is None or member.assigned.state.asked:
            return False
        return member.is_opening(self.now(), self.spec.lease_seconds)

    def trouble(self, client: ClientId) -> str:
        """Why a site declined its last task, in its own words."""
        return self._members[client].trouble

    def release(self, over: Over) -> None:
        """Sites that have the last model need not wait for the others: they are told that the run is over."""
        if self._released is None:
            self._released = over
            for member in self._members:
                if member.finished:
                    member.news.set()

    def give_up(self, client: ClientId, reason: str) -> None:
        """Wait no longer for a site. An update whose receipt is out stays counted: a task settles once."""
        assigned = self._members[client].assigned
        if assigned is not None and assigned.state.can_be_lost:
            stage = assigned.state.stage
            log.warning("no longer waited for", site=client, task=assigned.task.key, reason=reason)
            self._record.events.add(f"{client} is no longer waited for ({stage}, {reason})", "warning")
            self.tasks.tell(assigned, Lost(reason))

    def expired(self, client: ClientId) -> bool:
        """Whether a site has shown no progress for the time of a lease."""
        assigned, lease = self._members[client].assigned, self.spec.lease_seconds
        return assigned is not None and assigned.is_silent(self.now(), lease_seconds=lease)

    def end(self, over: Over) -> None:
        """There will be no more tasks; every site is told so when it asks next."""
        self._over = over
        for member in self._members:
            member.news.set()

    # -- what the sites call, through a transport

    @tells_full_disk
    async def join(self, site: ClientId, description: Description) -> Joined | None:
        """Register a site, early or late, if its data fit the run."""
        with self.notices.joining(site, description):
            self.notices.check_not_ended(site)
            model = self.spec.model
            description = resolve(site, description, classes=model.classes, image_size=True)
            fits(description, model, site)
            late = site not in self.spec.roster
            if not self._members.knows(site, text := description.to_json()):
                await self._books.journal.register.soon(site, text, late=late)
            self._welcome(site, description, text)
            self._data.look(site, description)
            envelopes, init = self._books.envelopes, self._books.init
            own = envelopes.address(init, site)
            return Joined(self.spec.to_json(), init.blob, own, envelopes.card, self.warnings)

    def _welcome(self, site: ClientId, description: Description, text: str) -> None:
        known = self._members.find(site)
        if known is None or known.has_left:
            self._record.events.came(site, "joined" if known is None else "came back")
        self._members.welcome(site, description.warnings, text=text)

    @tells_full_disk
    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float, before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        """Hand out the site's open task, the same one again if it asks again, or wait for one."""
        member = self.tasks.member(site)
        with self._members.on_the_line(member):
            try:
                if member.assigned is None and self._over is None and not self._may_go(member):
                    member.news.clear()
                    async with asyncio.timeout(wait):
                        await member.news.wait()
            except TimeoutError:
                return None
        assigned = member.assigned
        if assigned is None:
            return self._over_for(site)
        since = remembered_rounds.newest_committed(marks, committed := self._books.journal.committed())
        remembered_rounds.compare(member, marks, committed, since=since)
        # Its state of the run before counts until it has one of this run.
        earlier = 0 if since else remembered_rounds.newest_committed(before, self._books.before)
        assignment = await assigned.make(since, self.now, before=earlier)
        # Not waited for: it is written before the receipt that may follow, and a replay alone wants it.
        writing = self._books.journal.hand_out.later(assigned.task.key, site, assignment.task.since)
        writing.add_done_callback(remembered_rounds.look_at_handing)
        return assignment

    async def linger(self, site: ClientId, key: str, *, seconds: float) -> None:
        """Hold a site's call while it is at work on a task, and while that is wanted."""
        assigned = (member := self.tasks.member(site)).assigned
        wanted = assigned is not None and assigned.task.key == key
        if wanted or key == OPENING:
            with self._members.on_the_line(member):
                ended = {assigned.answer} if assigned and wanted else {asyncio.sleep(seconds)}
                await asyncio.wait(map(asyncio.ensure_future, ended), timeout=seconds)

    def _may_go(self, member: Member) -> bool:
        """Whether a site has the last model and the others are not waited for."""
        return self._released is not None and member.finished

    def _over_for(self, site: ClientId) -> Over | None:
        """The end, with how often this site was in it."""
        over = self._over or (self._released if self._may_go(self._members[site]) else None)
        return replace(over, counted=self.took_part[site]) if over and self.took_part else over

    @tells_full_disk
    async def visit(self, site: ClientId) -> Visited | None:
        """Give a site that takes part in no round the newest shared state; nobody waits for it."""
        return await self._visits.receive(site)

    def blob(self, site: ClientId, digest: str) -> Path:
        """The file with these bytes; what was made for another site is not there."""
        return self._visits.find(digest) or self._books.shelf.path_for(site, digest)

    def fetched(self, site: ClientId, digest: str) -> None:
        """A site has been sent the last of these bytes."""
        if (assigned := self.tasks.find(site)) is not None:
            self.tasks.tell(assigned, Fetched(digest, self.now()))

    @tells_full_disk
    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """Reserve room for an upload, or repeat the receipt of one that is already here."""
        return await self._intake.offer(site, offer)

    @tells_full_disk
    async def stored(self, site: ClientId, key: str) -> Receipt:
        """An upload is complete: verify all of it before any of it counts."""
        return await self._intake.stored(site, key)

    @tells_full_disk
    async def report(self, site: ClientId, key: str, report: Scores, *, alone: bool = True) -> None:
        """Take an evaluation; for tasks that upload nothing it is the answer."""
        assigned = self.tasks.awaited(site, key)
        try:
            evaluation.check(report, most_samples=self._members[site].most_samples)
        except ValueError as error:
            # It stays wrong: a site whose task were not over would hand in the same again and again.
            code = "scores" if evaluation.is_finite(report) else "not_finite"
            self.tasks.tell(assigned, Lost(f"refused:{code}"))
            raise self.tasks.refuse(code, f"{site}: {error}") from None
        entry = self._books.journal.report
        await (entry.soon if alone else entry.later)(key, site, report)
        if not assigned.state.uploads:
            self.tasks.tell(assigned, Reported())

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        """A site will not do a task, or was drawn to drop out after it."""
        if reason != "dropped" and reason not in DECLINES:
            raise self.tasks.refuse("reason", f"{reason!r} is no reason a site can give")
        if key == OPENING:
            # It takes no part in this run at all, and says goodbye next.
            self.tasks.member(site)
            self._note_declined(site, "the run", reason=reason, words=words)
            return
        assigned = self.tasks.awaited(site, key)
        if reason == "dropped" and not assigned.task.drop:
            self.tasks.tell(assigned, Lost("refused:reason"))
            raise self.tasks.refuse("reason", f"{site} was not drawn to drop out of {key}")
        self._members[site].trouble = ""
        if reason != "dropped":
            self._note_declined(site, key, reason=reason, words=words)
        if assigned.task.kind is Kind.FINISH and reason == "disk_full":
            # Nobody is given up at the end: the site asks for the same again when it has room.
            return
        self.tasks.tell(assigned, Lost(reason))

    def _note_declined(self, site: ClientId, what: str, *, reason: str, words: str) -> None:
        """Tell of a decline; of one that is repeated, as at the end for want of room, once."""
        (said,) = shorten([words[:LONGEST_WORDS]])
        member, told = self._members[site], (what, reason)
        member.trouble = f"declined {what}, {reason}: {said}"
        if member.declined != told:
            member.declined = told
            log.warning("a site declined", site=site, task=what, reason=reason, words=said)
            self._record.events.add(f"{site} declined {what} ({reason}): {said}", "warning")

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        """A site is at work."""
        member = self.tasks.member(site)
        self._members.hear(member)
        assigned = member.assigned
        if key == OPENING and assigned is not None and not assigned.state.asked:
            # A site that reads a large folder has not come for its task yet; that is no silence, for a while.
            if member.open_for(self.now(), self.spec.lease_seconds):
                self.tasks.tell(assigned, Excused(self.now()))
            return True
        if assigned is None or assigned.task.key != key:
            self._bear_with_late(assigned)
            return False
        self.tasks.tell(assigned, Progressed(progress, self.now()))
        return True

    def _bear_with_late(self, assigned: Assigned | None) -> None:
        """A slow site is still at a task that is over, and comes for its next one then: that is no silence, or it would
        be lost in each round for working at the last. The rule for slow sites bounds it; without that nothing would.
        """
        bounded = self.spec.straggler and self.spec.quorum != ALL
        if bounded and assigned is not None and not assigned.state.asked:
            self.tasks.tell(assigned, Excused(self.now()))

    def pause(self, site: ClientId) -> None:
        """A site is stopped and will come back: as if its line had closed. What it was asked waits for it."""
        member = self.tasks.member(site)
        member.hang_up(member.calls)

    async def leave(self, site: ClientId) -> None:
        """A site goes: what it was asked is lost at once, nobody waits for a lease to end."""
        self.notices.left(site)
        member = self.tasks.member(site)
        self._members.leave(member, noted=self._record.events.came(site, "left"))
        if member.assigned:
            self.tasks.tell(member.assigned, Lost("left"))

    async def remove(self, site: ClientId) -> None:
        """The operator takes a site out: what it was asked is lost at once, and it is no candidate any more."""
        self.notices.left(site)
        member = self._members.find(site)
        if member is None or member.removed:
            return
        await self._members.remove(member)
        self._record.events.add(f"{site} was removed by the operator; the run goes on without it", "warning")
        if member.assigned is not None:
            self.tasks.tell(member.assigned, Lost("removed"))

    def heard(self) -> tuple[int, int, int]:
        """How many of the registered sites are here, how many are away, and how many have said goodbye."""
        return self._members.count()

    def members(self) -> tuple[ClientId, ...]:
        """Sites that are likely to come again: they have not said goodbye and were heard within days."""
        return self._members.likely()

    def status(self) -> RunStatus:
        """The run at a glance."""
        line = (
            self.status_line() if self.status_line else RunStatus(self.spec.id, self.spec.method, "", 0, 0, 0)
        )
        seen = replace(line, sites=self._members.statuses(self.took_part), warnings=self.warnings)
        return self.notices.add_to(seen)

    def now(self) -> float:
        """The clock that leases are measured by."""
        return asyncio.get_running_loop().time()


async def _find_held(books: Books, client: ClientId, task: Task) -> str:
    """The update a receipt was given for before a restart, if the spool still has it whole."""
    # Not awaited: the caller must have assigned the task before it gives way for the first time.
    receipt = books.journal.receipt(client, task.round, task.attempt)
    if receipt is None:
        return ""
    digest, name, _ = receipt
    if await asyncio.to_thread(books.spool.whole, name, digest):
        return name
    await books.journal.forget.soon(client, task.round, task.attempt)
    return ""
