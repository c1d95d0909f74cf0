"""THE STORY of a run: from where its folder stands, round after round, to the last model at every site.

`round_retries.py` plays a round in as many attempts as it takes, `attempt_play.py` each attempt, `last_model.py`
the end.
"""

from __future__ import annotations

import asyncio

from pfl_common.errors import RunFailed
from pfl_common.spec.messages import Over, RunStatus
from pfl_common.spec.run import Kind
from pfl_server.run import score_sums
from pfl_server.run.attempt import Fleet, Script
from pfl_server.run.attempt_play import AttemptPlay, Checks, RunParts
from pfl_server.run.checkpoint_repair import load_newest
from pfl_server.run.divergence_guard import Guard
from pfl_server.run.early_stopping import EarlyStopping
from pfl_server.run.fall_back import FallBack
from pfl_server.run.last_model import LastModel
from pfl_server.run.lease_watch import LeaseWatch
from pfl_server.run.observer import Observer
from pfl_server.run.outlying_updates import OutlyingUpdates
from pfl_server.run.round_retries import RoundRetries
from pfl_server.run.spool_sweep import SpoolSweep
from pfl_server.store.disk_wait import Room
from pfl_server.store.round_base import Base
from pfl_server.store.run_store import Books
from pfl_server.telemetry.event_log import Record


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
        stop: asyncio.Event | None = None,
        all_here: bool = False,
    ) -> None:
        """With `all_here` nobody else can come: what a site declines for good ends the run."""
        room, record = room or Room(books.shelf.folder.parent), record or Record()
        room.give_back = books.spool.blanks.clear
        self._books, self._fleet, self._room, self._stop = books, fleet, room, stop or asyncio.Event()
        self._observer = Observer(books, room, record)
        self.watch = self._observer.watch
        self._guard = Guard(books, room, record.events, self.watch)
        self._early = EarlyStopping(books, room, self.watch, record.disclosure)
        self._sweep = SpoolSweep(books, room)
        leases = LeaseWatch(books.spec, fleet, tick=tick, stop=self._stop)
        parts = RunParts(books, fleet, room, self._observer)
        self._fall_back = FallBack(books, room, record.events)
        self._outlying_updates = OutlyingUpdates(books, room, record.events)
        checks = Checks(self._guard, self._fall_back, self._outlying_updates)
        self._attempts = AttemptPlay(parts, checks, leases, self._sweep)
        self._rounds = RoundRetries(
            parts, self._attempts, script=script, tick=tick, stop=self._stop, all_here=all_here
        )
        self._last_model = LastModel(parts, self._attempts, leases)

    def status(self) -> RunStatus:
        """The run at a glance."""
        return self._observer.status()

    async def run(self) -> None:
        """Play all rounds that are not committed yet, then let every site finish."""
        # A run that was stopped stays so: the same command once more only serves its last state. One that failed
        # is tried again: its operator has mended something.
        status, words = await self._room.have(self._books.journal.status.soon)
        over = Over(status, words) if status not in ("running", "failed") else None
        if over:
            self._stop.set()
        number, base = await self._resume(over)
        try:
            while number < self._books.spec.rounds and not (self._stop.is_set() or self._early.reason):
                closed = await self._rounds.play(number + 1, base)
                if closed is None:
                    base = self._rounds.base
                    break
                number, base = number + 1, closed
                if self._books.spec.patience:
                    await self._observer.settle()
                await self._early.look(number)
            if self._stop.is_set():
                await self._rounds.abandon_open()
        except RunFailed as failed:
            await self._sweep.give_back()
            self._observer.failed(str(failed))
            await self._room.have(self._books.journal.end.soon, "failed", str(failed))
            self._fleet.end(Over("failed", str(failed)))
            raise
        await self._finish(number, base, over)

    def stop(self) -> None:
        """End the run in good order after the round that is under way."""
        self._stop.set()

    async def _resume(self, over: Over | None) -> tuple[int, Base]:
        """The last committed round and the state to go on from, with all that was known of the run."""
        base, committed = await load_newest(self._books, self._room), self._books.journal.committed()
        last = max(committed, default=0)
        await self._observer.recall()
        await self._fall_back.recall()
        await self._outlying_updates.recall()
        await self._guard.recall(back=await self._fall_back.tell(last + 1))
        await self._rounds.recall()
        if last:
            task = self._books.task(Kind.TRAIN, last, committed[last])
            await self._observer.sum_left(*score_sums.of_round(task))
        await self._early.recall()
        if last:
            self._observer.resumed(last, over=over.status if over else "")
        return last, base

    async def _finish(self, number: int, base: Base, before: Over | None) -> None:
        """Bring the last shared state to every site; a run that was over before only serves it again."""
        await self._observer.settle()
        over = before or self._how_it_ended(number)
        self.watch.words, self.watch.patience = over.words, ""
        self._attempts.clear_shelf(max(1, number), 1)
        await self._sweep.give_back()
        ended = await self._last_model.bring(number, base, over, aside=self._rounds.aside())
        await self._room.have(self._books.journal.end.soon, over.status, over.words)
        if before:
            self.watch.status = over.status
        else:
            self._observer.over(over, number, ended)
        self._fleet.end(over)

    def _how_it_ended(self, number: int) -> Over:
        if number == self._books.spec.rounds:
            return Over("finished")
        reason = self._early.reason
        return Over("finished", reason) if reason else Over("stopped")
