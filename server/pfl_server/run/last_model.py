"""Brings a run's last model to every site; one that is away gets it when it comes back."""

from __future__ import annotations

import asyncio

from pfl_common.spec.messages import Over
from pfl_common.spec.run import ClientId, Kind
from pfl_server.decisions.round import Round
from pfl_server.run.attempt_play import AttemptPlay, RunParts
from pfl_server.run.lease_watch import LeaseWatch
from pfl_server.store.round_base import Base


class LastModel:
    """Asks every site to finish, and goes on asking those that are away."""

    def __init__(self, parts: RunParts, attempts: AttemptPlay, leases: LeaseWatch) -> None:
        self._books, self._fleet, self._room = parts.books, parts.fleet, parts.room
        self._observer, self._attempts, self._leases = parts.observer, attempts, leases
        self._asks: list[asyncio.Task[None]] = []

    async def bring(self, number: int, base: Base, over: Over, *, aside: frozenset[ClientId]) -> Round:
        """Give the last state to all; ends when nobody is waited for any more; tells who was away. Sites that have it
        need not wait for the others: they are told `over`. Nobody waits for who is set aside.
        """
        sites, watch = self._fleet.roster(), self._observer.watch
        task = self._books.task(Kind.FINISH, max(1, number), 1)
        opened = self._attempts.open(task, base, Round(sites, quorum=0))
        opened.skipped, watch.status, watch.round = aside, "finishing", number
        # Served once more, a run does not miss those who were given the model in an earlier life.
        given = await self._room.have(self._books.journal.handed_to.soon, task.key)
        watch.unserved = set(sites) - set(given)
        self._asks = [asyncio.create_task(self._attempts.ask(site, opened.task, opened)) for site in sites]
        leases = asyncio.create_task(self._leases.at_end(opened, over))
        while opened.round.awaited:
            opened.round.handle(await opened.events.get())
            watch.awaited = opened.round.awaited
        leases.cancel()
        await self._observer.sum_left(opened.task)
        return opened.round
