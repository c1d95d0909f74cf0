"""Plays one attempt at a round: asks its cohort, follows the round's orders, then commits or abandons it.

`decisions/round.py` decides which of the two; `round_retries.py` what comes after an attempt that was abandoned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import time

import structlog

from pfl_common.app.prompt_work import work_on
from pfl_common.learning.method import Closed
from pfl_common.spec.manifest import full_size
from pfl_common.spec.messages import Assignment, Scores
from pfl_common.spec.run import ClientId, Kind, Task, parcel_key
from pfl_common.tensors.summing import Sum
from pfl_server.decisions.divergence import Outcome
from pfl_server.decisions.round import Abandon, Arrived, Close, Fold, Lost, Refuse, Round
from pfl_server.decisions.sampling import Draw
from pfl_server.run import score_sums
from pfl_server.run.attempt import Fleet, Opened
from pfl_server.run.divergence_guard import Guard
from pfl_server.run.fall_back import FallBack
from pfl_server.run.lease_watch import LeaseWatch
from pfl_server.run.observer import Observer
from pfl_server.run.outlying_updates import OutlyingUpdates
from pfl_server.run.spool_sweep import SpoolSweep
from pfl_server.sites.assignment import SiteLost
from pfl_server.sites.downloads import Ahead
from pfl_server.store.disk_wait import Room
from pfl_server.store.journal import Attempt
from pfl_server.store.round_base import Base
from pfl_server.store.run_store import Books
from pfl_server.store.tallies import open_tally
from pfl_server.telemetry.counters import Spell
from pfl_server.telemetry.course import Course

log = structlog.get_logger("pfl.training")


@dataclass(frozen=True)
class RunParts:
    """What a run is played with from its first round to its last: its folder, its sites, its disk, its observer."""

    books: Books
    fleet: Fleet
    room: Room
    observer: Observer


@dataclass(frozen=True)
class Checks:
    """What looks at how training goes: whether it runs away, where it goes on from then, what all updates say."""

    guard: Guard
    fall_back: FallBack
    outlying_updates: OutlyingUpdates


@dataclass(frozen=True)
class Plan:
    """How an attempt is played: the updates that close it, and the sites that get less patience than others."""

    quorum: int
    skipped: frozenset[ClientId]
    """They are asked and not waited for."""
    doubted: frozenset[ClientId]
    """They were lost when they were asked last."""
    whole: frozenset[ClientId] = frozenset()
    """They could not use their last download: the next one is no change of what they were sent before."""


@dataclass(frozen=True)
class Ended:
    """The end of an attempt: what the next round begins from, None if it was abandoned, and why updates were lost."""

    base: Base | None
    losses: Mapping[ClientId, str]
    words: str
    """What the operator has to know of a training that diverges."""
    held: Mapping[ClientId, float]
    """For how many seconds each lost site was waited for when the others had answered."""


class AttemptPlay:
    """Plays the attempts of a run, one at a time."""

    def __init__(self, parts: RunParts, checks: Checks, leases: LeaseWatch, sweep: SpoolSweep) -> None:
        self._books, self._fleet, self._room = parts.books, parts.fleet, parts.room
        self._observer, self._checks, self._leases, self._sweep = parts.observer, checks, leases, sweep
        self._sum, self._ahead = Sum(), Ahead(parts.books)
        self._evaluations: set[asyncio.Task[None]] = set()

    @property
    def fall_back(self) -> FallBack:
        """Which rounds begin from an older state."""
        return self._checks.fall_back

    async def play(self, found: Attempt, base: Base, plan: Plan) -> Ended:
        """Ask a cohort and settle with each of its sites."""
        number, draw = found.round, found.draw
        self.clear_shelf(number, found.attempt)
        round_ = Round(draw.cohort, quorum=plan.quorum)
        task = self._books.task(Kind.TRAIN, number, found.attempt)
        self._books.compare_with(base.state)
        opened = self.open(task, base, round_, at=found.opened)
        opened.skipped, opened.doubted = plan.skipped, plan.doubted
        opened.downloads.whole = plan.whole
        self._observer.opened(opened, draw.cohort)
        if not draw.cohort:
            # Only a script says so: the sites that were asked had been lost before training.
            return Ended(await self._close(opened, ()), {}, "", {})
        dropping = replace(opened.task, drop=True)
        asks = {
            site: asyncio.create_task(self.ask(site, dropping if site in draw.drops else opened.task, opened))
            for site in draw.cohort
        }
        leases = asyncio.create_task(self._leases.during_round(opened, asks.values()))
        self._evaluate_others(opened, draw.cohort)
        try:
            closed = await self._settle(opened, draw)
        finally:
            for job in (*asks.values(), leases):
                job.cancel()
        back = await self._checks.fall_back.tell(number)
        await self._checks.guard.judge(task, draw, round_, committed=closed is not None, back=back)
        return Ended(closed, round_.losses, self._checks.guard.words, opened.held())

    def open(self, task: Task, base: Base, round_: Round, *, at: float | None = None) -> Opened:
        """Begin to ask for tasks of one kind: what is handed out and what comes back belong to it."""
        books, self._observer.watch.awaited = self._books, round_.awaited
        downloads = self._ahead.downloads(task, books.digest_after(base.after), base)
        clock, now = asyncio.get_running_loop().time, time()
        # Not in the future, whatever was done to this machine's clock.
        at = now if at is None else min(at, now)
        return Opened(
            task,
            base.state,
            downloads,
            round_,
            open_tally(books, base.state, self._sum),
            began=clock() - (now - at),
            at=at,
            sealing=Spell(clock),
            folding=Spell(clock),
        )

    async def _settle(self, opened: Opened, draw: Draw) -> Base | None:
        """Follow the round's orders to its end; None when it was abandoned."""
        spec, task = self._books.spec, opened.task
        size = full_size(spec.manifests.get(parcel_key(task.kind, task.phase, "up"), ()))
        while True:
            for order in opened.round.handle(await opened.events.get()):
                match order:
                    case Fold(client, update):
                        with opened.folding.going_on():
                            await work_on(size, opened.tally.add, client, update)
                    case Refuse(client, code):
                        log.error("an update came for a site that had settled", site=client, code=code)
                    case Close(counted):
                        return await self._conclude(opened, draw, counted)
                    case Abandon(reason):
                        await self._abandon(opened, draw, reason)
                        return None
            self._observer.watch.awaited = opened.round.awaited

    async def _conclude(self, opened: Opened, draw: Draw, counted: Sequence[ClientId]) -> Base | None:
        """Close a round that has enough updates, unless a look at all of them together says otherwise."""
        match await self._checks.outlying_updates.look(opened, counted, draw):
            case Close(taken):
                return await self._close(opened, taken)
            case Abandon(reason):
                await self._abandon(opened, draw, reason)
                return None

    async def ask(self, site: ClientId, task: Task, opened: Opened) -> None:
        """Place a task with a site; how it ended is an event of the attempt."""

        async def prepare(asked: Task) -> Assignment:
            with opened.sealing.going_on():
                return await opened.downloads.assignment(site, asked)

        try:
            update = await self._fleet.ask(site, task, prepare)
            self._observer.watch.unserved.discard(site)
            if task.kind is opened.task.kind:
                self._leases.answered(opened, site)
            opened.events.put_nowait(Arrived(site, update))
        except SiteLost as lost:
            opened.stages[site] = lost.stage
            if task.kind is opened.task.kind:
                opened.lost_after[site] = asyncio.get_running_loop().time() - opened.began
            opened.events.put_nowait(Lost(site, lost.reason))

    def _evaluate_others(self, opened: Opened, cohort: Sequence[ClientId]) -> None:
        """Sites that are not asked to train still measure the current model, in evaluation rounds."""
        if (opened.task.round - 1) % self._books.spec.evaluate_every:
            return
        task = replace(opened.task, kind=Kind.EVALUATE)
        aside = replace(opened, events=asyncio.Queue())
        for site in sorted(set(self._fleet.present()) - set(cohort)):
            job = asyncio.create_task(self.ask(site, task, aside))
            self._evaluations.add(job)
            job.add_done_callback(self._evaluations.discard)

    async def _close(self, opened: Opened, counted: Sequence[ClientId]) -> Base:
        task, clock = opened.task, asyncio.get_running_loop().time
        with opened.folding.going_on():
            made, told = await self._room.have(asyncio.to_thread, self._make_state, opened, counted)
        sent = await self._room.have(opened.downloads.sent, task)
        following = None if task.round == task.rounds else self._books.task(Kind.TRAIN, task.round + 1, 1)
        began = clock()
        closed = Base(task.round, made, sent.values)
        closed = await self._room.have(self._ahead.settle, closed, following)
        self._observer.took("commit", clock() - began)
        course = replace(self._observer.course(opened), diagnostics=told)
        reports = await self._room.have(self._commit, opened, counted, course)
        self._checks.outlying_updates.remember(opened)
        self._observer.watch.awaited = ()
        await self._end(opened)
        await self._observer.closed(opened, counted, course, reports)
        return closed

    async def _commit(self, opened: Opened, counted: Sequence[ClientId], course: Course) -> list[Scores]:
        """Written and read in one go: gives what its sites have measured."""
        journal, task, losses = self._books.journal, opened.task, opened.round.losses
        keys = score_sums.keys_of(score_sums.of_round(task))
        committing = journal.commit.later(
            task.round, task.attempt, counted, losses, course=course, changes=opened.changes
        )
        _, reports = await asyncio.gather(committing, journal.reports.soon(*keys))
        return reports

    def _make_state(self, opened: Opened, counted: Sequence[ClientId]) -> Closed:
        """The state after a round, and the method's own numbers; a round without updates changes nothing."""
        if not counted:
            return Closed(opened.state, {})
        method, half = self._books.method, self._books.half
        return method.close(half, opened.state, arrivals=opened.tally.arrivals(), task=opened.task)

    async def _abandon(self, opened: Opened, draw: Draw, reason: str) -> None:
        task, course, losses = opened.task, self._observer.course(opened), opened.round.losses
        counted, quorum = len(opened.round.counted), self._books.spec.quorum
        outcome = Outcome.of(draw, quorum, counted, losses, committed=False)
        back_to, abandon = self._checks.fall_back.target(task, outcome), self._books.journal.abandon.soon
        await self._room.have(
            abandon, task.round, task.attempt, losses, reason, course=course, back_to=back_to
        )
        self._observer.abandoned(opened, reason, course)
        if back_to is not None:
            self._checks.fall_back.decide(task.round, back_to)
            await self._checks.fall_back.announce(task.round)
        # Updates of an attempt that is over are counted nowhere: the next one needs their room.
        await self._end(opened)

    async def _end(self, opened: Opened) -> None:
        opened.tally.close()
        self._books.compare_with(None)
        await self._sweep.sweep()

    def clear_shelf(self, number: int, attempt: int) -> None:
        """Remove the last attempt's parcels, which sites that measure could fetch until now. Those of the attempt that
        begins stay: a coordinator that was killed in it goes on serving the same bytes.
        """
        for evaluation in self._evaluations:
            evaluation.cancel()
        self._books.shelf.keep_only(number, attempt)
