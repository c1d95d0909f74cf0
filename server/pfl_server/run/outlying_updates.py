"""Looks at all updates of a round together, once every site has settled and before any of them makes the next state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from pfl_common.spec.run import ClientId
from pfl_server.decisions.divergence import OUTLYING, Outcome, name_sites
from pfl_server.decisions.outlying import Outlying
from pfl_server.decisions.round import Abandon, Close
from pfl_server.decisions.sampling import Draw
from pfl_server.run.attempt import Opened
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.telemetry.event_log import Events

log = structlog.get_logger("pfl.training")


class OutlyingUpdates:
    """Leaves out updates that went too far, and gives up an attempt in which most sites run away."""

    def __init__(self, books: Books, room: Room, events: Events) -> None:
        self._books, self._room, self._events = books, room, events
        self._outlying = Outlying(books.spec.change_factor)

    async def recall(self) -> None:
        """After a restart: how far updates went in the rounds so far."""
        before = await self._room.have(self._books.journal.changes.soon)
        self._outlying = Outlying(self._books.spec.change_factor, before)

    async def look(self, opened: Opened, counted: Sequence[ClientId], draw: Draw) -> Close | Abandon:
        """The verdict on an attempt that has enough updates."""
        verdict: Close | Abandon = Close(tuple(counted))
        if self._books.spec.change_factor:
            opened.changes = await asyncio.to_thread(opened.tally.changes)
            if far := self._outlying.find(opened.changes):
                verdict = await self._leave_out(opened, far)
        if isinstance(verdict, Abandon):
            return verdict
        quorum, losses = self._books.spec.quorum, opened.round.losses
        outcome = Outcome.of(draw, quorum, len(verdict.counted), losses, committed=True)
        if outcome.most_diverge:
            return Abandon(f"the updates of most sites run away: {name_sites(outcome.diverged)}")
        return verdict

    def remember(self, opened: Opened) -> None:
        """Its round is committed."""
        self._outlying.remember(opened.changes)

    async def _leave_out(self, opened: Opened, far: Sequence[ClientId]) -> Close | Abandon:
        limit, place = self._outlying.limit(opened.changes), opened.task
        went = {site: round(opened.changes.pop(site), 6) for site in far}
        log.error("updates went too far", round=place.round, attempt=place.attempt, sites=went, limit=limit)
        self._events.add(
            f"round {place.round}: {name_sites(tuple(far))} went more than {self._books.spec.change_factor:g} times as "
            f"far as is usual (--change-factor) and is not counted",
            "error",
        )
        opened.stages |= dict.fromkeys(far, "uploading")
        await asyncio.to_thread(opened.tally.leave_out, far)
        return opened.round.exclude(far, OUTLYING)
