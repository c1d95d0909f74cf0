"""THE STORY of a run: for each round sample, send, gather, close, checkpoint, observe; at the end, finish.

Nothing here knows of sockets or files beyond the books; `fleet` brings the sites, `round` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from time import time

import structlog

from pfl_common.errors import RunFailed, StateError
from pfl_common.learning.method import Closed
from pfl_common.spec.messages import Assignment, Over
from pfl_common.spec.rules import ALL
from pfl_common.spec.run import ClientId, Kind, Task
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_server.decisions import sampling
from pfl_server.decisions.round import Abandon, Arrived, Close, Fold, Lost, Refuse, Round, TimeUp
from pfl_server.decisions.sampling import Draw
from pfl_server.run.attempt import Fleet, Opened, Script
from pfl_server.run.divergence_guard import Guard
from pfl_server.run.observer import Observer
from pfl_server.sites.ahead import Ahead
from pfl_server.sites.assignment import SiteLost
from pfl_server.store.checkpoints import GENERATIONS
from pfl_server.store.disk_wait import Room
from pfl_server.store.fold import PlainTally
from pfl_server.store.journal import Attempt
from pfl_server.store.run_store import Books
from pfl_server.telemetry.counters import Spell
from pfl_server.telemetry.event_log import Record

log = structlog.get_logger("pfl.training")

ATTEMPTS = 20
"""Abandoned attempts at one round before the run is given up: nothing hangs for ever."""


class Training:
    """One run, from the state its folder holds to its end."""

    def __init__(  # noqa: PLR0913  # what a run is played with, each with a default
        self,
        books: Books,
        fleet: Fleet,
        *,
        script: Script | None = None,
        tick: float = 0.25,
        room: Room | None = None,
        record: Record | None = None,
    ) -> None:
        self._room, self._record = room or Room(books.shelf.folder.parent), record or Record()
        self._room.give_back = books.spool.blanks.clear
        self._books, self._fleet, self._script, self._tick = books, fleet, script, tick
        self._spec = books.spec
        self._config = books.method.settle(books.spec.settings)
        self._sum, self._ahead = Sum(), Ahead(books)
        self._sweeping: asyncio.Task[int] | None = None
        self._evaluations: set[asyncio.Task[None]] = set()
        self._late: list[asyncio.Task[None]] = []
        self._stopping, self._over = False, ""
        self._observer = Observer(books, self._room, self._record)
        self.watch, self.status = self._observer.watch, self._observer.status
        self._guard = Guard(books, self._room, self._record.events, self.watch)

    async def run(self) -> None:
        """Play all rounds that are not committed yet, then let every site finish."""
        # A run that was stopped stays so: the same command once more only serves its last state. One that failed
        # is tried again: its operator has mended something.
        status, _ = await self._room.have(self._books.journal.status.soon)
        self._over = "" if status in ("running", "failed") else status
        self._stopping = self._stopping or bool(self._over)
        number, state = await self._resume()
        try:
            while number < self._spec.rounds and not self._stopping:
                closed = await self._play(number + 1, state)
                if closed is None:
                    break
                number, state = number + 1, closed
            if self._stopping:
                await self._abandon_open()
        except RunFailed as failed:
            await self._give_back()
            self._observer.failed(str(failed))
            await self._room.have(self._books.journal.end.soon, "failed", str(failed))
            self._fleet.end(Over("failed", str(failed)))
            raise
        await self._finish(number, state)

    def stop(self) -> None:
        """End the run in good order after the round that is under way."""
        self._stopping = True

    # -- one round

    async def _play(self, number: int, state: State) -> State | None:
        """One round, in as many attempts as it takes; None when the run was stopped before one succeeded."""
        for tried in range(ATTEMPTS):
            began = asyncio.get_running_loop().time()
            drawn = await self._draw(number, again=tried > 0)
            self._record.meter.took("wait", asyncio.get_running_loop().time() - began)
            if drawn is None:
                return None
            candidates, draw = drawn
            journal, now = self._books.journal, time()
            attempt = await self._room.have(journal.open_attempt.soon, number, candidates, draw, at=now)
            found = await self._room.have(journal.attempt.soon, number, attempt)
            closed = await self._attempt(found, state)
            if closed is not None:
                return closed
        raise RunFailed(f"round {number} was abandoned {ATTEMPTS} times: see the journal for each reason")

    async def _abandon_open(self) -> None:
        """What a coordinator that was killed had open is not left so when the run ends: its receipts count no more."""
        for row in await self._room.have(self._books.journal.rounds.soon):
            if row["status"] == "open":
                number, attempt = int(str(row["round"])), int(str(row["attempt"]))
                why = "the run was stopped"
                await self._room.have(self._books.journal.abandon.soon, number, attempt, {}, why)
                self.watch.outcomes["abandoned"] += 1

    async def _draw(self, number: int, *, again: bool) -> tuple[tuple[ClientId, ...], Draw] | None:
        """Draw a cohort once somebody of it is here; after an abandoned attempt, once so many are that another
        can succeed: without them, every attempt would only burn its number. None when the run is stopped.
        """
        if self._script is not None:
            return self._script.draw(number)
        clock, rule = asyncio.get_running_loop(), self._spec.participation
        end = clock.time() + self._spec.round_seconds
        while not self._stopping:
            present = self._fleet.present()
            candidates = present if self._spec.candidates == "present" else self._fleet.roster()
            if self._spec.candidates == "present" and rule.fixed and not set(rule.fixed) & set(candidates):
                candidates = ()  # those who are here are not asked, and those who are may come
            if candidates:
                draw = sampling.draw(rule, seed=self._spec.seed, number=number, candidates=candidates)
                wanted = draw.quorum(self._spec.quorum) if again else 0
                here = set(draw.cohort) & set(present)
                if here and len(here - draw.drops) >= wanted:
                    return candidates, draw
            if clock.time() > end:
                waited = f"{self._spec.round_seconds:.0f} s"
                seen = "too few sites of the cohort were" if again else "no site of the cohort was"
                raise RunFailed(f"{seen} heard for {waited} before round {number}")
            await asyncio.sleep(self._tick)
        return None

    async def _attempt(self, found: Attempt, state: State) -> State | None:
        number, draw = found.round, found.draw
        self._clear_shelf(number, found.attempt)
        round_ = Round(draw.cohort, quorum=draw.quorum(self._spec.quorum))
        task = self._task(Kind.TRAIN, number, found.attempt)
        opened = self._open(task, state, round_, after=number - 1, at=found.opened)
        self._observer.opened(opened, draw.cohort)
        if not draw.cohort:
            # Only a script says so: whoever was asked had been lost before training.
            return await self._close(opened, ())
        asks = {
            site: asyncio.create_task(self._ask(site, replace(opened.task, drop=site in draw.drops), opened))
            for site in draw.cohort
        }
        leases = asyncio.create_task(self._watch_leases(opened, asks))
        self._evaluate_others(opened, draw.cohort)
        try:
            closed = await self._settle(opened)
        finally:
            for job in (*asks.values(), leases):
                job.cancel()
        await self._guard.judge(task, draw, round_, committed=closed is not None)
        return closed

    def _open(
        self, task: Task, state: State, round_: Round, *, after: int, at: float | None = None
    ) -> Opened:
        books, self.watch.awaited = self._books, round_.awaited
        downloads = self._ahead.downloads(task, books.digest_after(after))
        clock, now = asyncio.get_running_loop().time, time()
        # Not in the future, whatever was done to this machine's clock.
        at = now if at is None else min(at, now)
        return Opened(
            task,
            state,
            downloads,
            round_,
            PlainTally(books.spool, self._sum),
            began=clock() - (now - at),
            at=at,
            sealing=Spell(clock),
            folding=Spell(clock),
        )

    async def _settle(self, opened: Opened) -> State | None:
        """Follow the round's orders to its end; None when it was abandoned."""
        while True:
            for order in opened.round.handle(await opened.events.get()):
                match order:
                    case Fold(client, update):
                        with opened.folding.going_on():
                            await asyncio.to_thread(opened.tally.add, client, update)
                    case Refuse(client, code):
                        log.error("an update came for a site that had settled", site=client, code=code)
                    case Close(counted):
                        return await self._close(opened, counted)
                    case Abandon(reason):
                        await self._abandon(opened, reason)
                        return None
            self.watch.awaited = opened.round.awaited

    async def _ask(self, site: ClientId, task: Task, opened: Opened) -> None:
        async def prepare(asked: Task) -> Assignment:
            with opened.sealing.going_on():
                return await opened.downloads.assignment(opened.state, site, asked)

        try:
            update = await self._fleet.ask(site, task, prepare)
            self.watch.unserved.discard(site)
            opened.events.put_nowait(Arrived(site, update))
        except SiteLost as lost:
            opened.stages[site] = lost.stage
            opened.events.put_nowait(Lost(site, lost.reason))

    async def _watch_leases(self, opened: Opened, asks: Mapping[ClientId, asyncio.Task[None]]) -> None:
        """The deadline; and sites whose lease has ended are given up once only such sites are awaited.

        Nobody is declared lost here: the fleet settles each task once, so that a site whose receipt goes
        out in this very moment is counted, and one that was given up gets none.
        """
        async for silent in self._silences(opened.round):
            # Whoever stops the run does not want to wait for the deadline of a site that is dead.
            patient = self._spec.quorum == ALL and not self._stopping
            if not patient and len(silent) == len(opened.round.awaited):
                for site in silent:
                    self._fleet.give_up(site, "lease")
        for site in opened.round.awaited:
            self._fleet.give_up(site, "deadline")
        await asyncio.wait(asks.values())
        opened.events.put_nowait(TimeUp())

    async def _silences(self, round_: Round) -> AsyncIterator[list[ClientId]]:
        """Until the deadline, the awaited sites that show no progress, whenever there are any."""
        clock, lease = asyncio.get_running_loop(), self._spec.lease_seconds
        end, judging = clock.time() + self._spec.round_seconds, 0.0
        while (left := end - (before := clock.time())) > 0:
            await asyncio.sleep(min(self._tick, left))
            if clock.time() - before > self._tick + lease / 2:
                # This machine was asleep, not the sites: they get a lease's time to be heard again.
                judging = clock.time() + lease
            silent = [site for site in round_.awaited if self._fleet.expired(site)]
            if silent and clock.time() > judging:
                yield silent

    async def _close(self, opened: Opened, counted: Sequence[ClientId]) -> State:
        task, clock = opened.task, asyncio.get_running_loop().time
        with opened.folding.going_on():
            closed, told = await self._room.have(asyncio.to_thread, self._conclude, opened, counted)
        following = None if task.round == task.rounds else self._task(Kind.TRAIN, task.round + 1, 1)
        began = clock()
        closed = await self._room.have(self._ahead.settle, task.round, closed, following)
        self._record.meter.took("commit", clock() - began)
        losses, course = opened.round.losses, replace(self._observer.course(opened), diagnostics=told)
        commit = self._books.journal.commit.soon
        await self._room.have(commit, task.round, task.attempt, counted, losses, course=course)
        await self._observer.closed(opened, counted, course)
        await self._sweep()
        return closed

    def _conclude(self, opened: Opened, counted: Sequence[ClientId]) -> Closed:
        """The state after a round, and what the method tells of it; a round of nobody changes and tells nothing."""
        if not counted:
            return Closed(opened.state, {})
        method, half = self._books.method, self._books.half
        return method.close(half, opened.state, arrivals=opened.tally.arrivals(), task=opened.task)

    async def _abandon(self, opened: Opened, reason: str) -> None:
        task, course = opened.task, self._observer.course(opened)
        abandon = self._books.journal.abandon.soon
        await self._room.have(abandon, task.round, task.attempt, opened.round.losses, reason, course=course)
        self._observer.abandoned(opened, reason, course)
        # Updates of an attempt that is over are counted nowhere: the next one needs their room.
        await self._sweep()

    async def _sweep(self) -> None:
        """Let go of updates that no kept checkpoint needs; the last round's stay, to make its checkpoint again."""
        if self._sweeping is not None:
            await self._sweeping
        generations = self._books.checkpoints.generations()
        kept = {name for checkpoint in generations for name in checkpoint.kept}
        committed = self._books.journal.committed()
        last = max(committed, default=0)
        # While the first state is not far, all since then: it can be begun from again.
        for number in range(1 if last <= GENERATIONS else last, last + 1):
            receipts = await self._room.have(self._books.journal.receipts.soon, number, committed[number])
            kept |= {name for _, name in receipts.values()}
        # What goes is named now, before the next round brings more; taking it away need not be waited for.
        doomed = self._books.spool.unwanted(kept)
        self._sweeping = asyncio.create_task(asyncio.to_thread(self._books.spool.free, doomed))

    async def _give_back(self) -> None:
        """No round is to come: what was kept for its uploads to be written over would lie there for good."""
        if self._sweeping is not None:
            await self._sweeping
        await asyncio.to_thread(self._books.spool.blanks.clear)

    def _clear_shelf(self, number: int, attempt: int) -> None:
        """Only now are the last attempt's parcels of no use: sites that measure were still fetching them. Those of
        the attempt that begins stay: a coordinator that was killed in it serves the very same bytes on.
        """
        for evaluation in self._evaluations:
            evaluation.cancel()
        self._books.shelf.keep_only(number, attempt)

    # -- evaluation, end, resumption

    def _evaluate_others(self, opened: Opened, cohort: Sequence[ClientId]) -> None:
        """Sites that are not asked to train still measure the current model, in evaluation rounds."""
        if (opened.task.round - 1) % self._spec.evaluate_every:
            return
        task = replace(opened.task, kind=Kind.EVALUATE)
        aside = replace(opened, events=asyncio.Queue())
        for site in sorted(set(self._fleet.present()) - set(cohort)):
            job = asyncio.create_task(self._ask(site, task, aside))
            self._evaluations.add(job)
            job.add_done_callback(self._evaluations.discard)

    async def _finish(self, number: int, state: State) -> None:
        """Bring the last shared state to every site; a site that is away gets it when it comes back."""
        self._clear_shelf(max(1, number), 1)
        await self._give_back()
        sites = self._fleet.roster()
        task = self._task(Kind.FINISH, max(1, number), 1)
        opened = self._open(task, state, Round(sites, quorum=0), after=number)
        self.watch.status, self.watch.round = "finishing", number
        # Served once more, a run does not miss those who were given the model in an earlier life.
        given = await self._room.have(self._books.journal.handed_to.soon, task.key)
        self.watch.unserved = set(sites) - set(given)
        self._late = [asyncio.create_task(self._ask(site, opened.task, opened)) for site in sites]
        leases = asyncio.create_task(self._watch_absent(opened))
        while opened.round.awaited:
            opened.round.handle(await opened.events.get())
            self.watch.awaited = opened.round.awaited
        leases.cancel()
        if not await self._room.have(self._books.journal.is_summed.soon, opened.task.key):
            # Served once more, a finished run keeps its sum: a site that comes again is not the whole of it.
            await self._observer.sum_scores(opened.task)
        done = "stopped" if number < self._spec.rounds else "finished"
        await self._room.have(self._books.journal.end.soon, done)
        if self._over:
            self.watch.status = done
        else:
            self._observer.over(done, number, opened.round)
        self._fleet.end(Over(done))

    async def _watch_absent(self, opened: Opened) -> None:
        """At the end nobody is given up: who is silent is only no longer waited for."""
        async for silent in self._silences(opened.round):
            if len(silent) == len(opened.round.awaited):
                for site in silent:
                    opened.events.put_nowait(Lost(site, "lease"))
        opened.events.put_nowait(TimeUp())

    async def _resume(self) -> tuple[int, State]:
        committed = self._books.journal.committed()
        last = max(committed, default=0)
        found = self._books.checkpoints.load(upto=last)
        number, state = found if found else (0, self._books.first)
        for missing in range(number + 1, last + 1):
            state = await self._remake(missing, committed[missing], state)
        await self._observer.recall()
        await self._guard.recall()
        if last:
            await self._observer.sum_left(self._task(Kind.TRAIN, last, committed[last]))
            self._observer.resumed(last, over=self._over)
        return last, state

    async def _remake(self, number: int, attempt: int, state: State) -> State:
        """A checkpoint was damaged: make it again from the one before and the counted updates."""
        receipts = await self._room.have(self._books.journal.receipts.soon, number, attempt)
        counted = await self._room.have(self._books.journal.counted.soon, number, attempt)
        if not all(self._books.spool.whole(receipts[site][1], receipts[site][0]) for site in counted):
            raise StateError(
                f"the checkpoint of round {number} is damaged and so are updates it was made of",
                advice="restore the run's folder from a backup, or begin another run: --new-run with another --seed",
            )
        tally = PlainTally(self._books.spool)
        for site in counted:
            tally.add(site, receipts[site][1])
        if not counted:
            return state
        return self._books.half.close(state, tally.arrivals(), self._task(Kind.TRAIN, number, attempt)).state

    def _task(self, kind: Kind, number: int, attempt: int) -> Task:
        phase = self._books.method.phase(self._config, number, self._spec.rounds)
        return Task(kind, number, self._spec.rounds, attempt, phase)
