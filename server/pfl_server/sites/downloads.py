"""The parcels that sites fetch in one round: one for all, or one per site if the method says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from pfl_common.spec.messages import Assignment, header_down
from pfl_common.spec.run import ClientId, Task
from pfl_common.tensors.state import State
from pfl_server.envelopes import Posted
from pfl_server.store.run_store import Books

AT_ONCE = 2
"""Replies that are made at the same time: each may hold a few models in memory, and one of the threads all share."""


class Downloads:
    """The parcels made from one state: one for all sites, or one per site if the method says PER_CLIENT."""

    def __init__(self, books: Books, digest: str) -> None:
        self._books, self._digest = books, digest
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._made: dict[tuple[str, ...], asyncio.Task[Posted]] = {}

    async def assignment(self, state: State, client: ClientId, task: Task) -> Assignment:
        """A task with its parcel; a newcomer (`since` = 0) gets what the method welcomes with."""
        who = client if self._books.method.per_client else "*"
        key = (
            ("welcome", task.kind, task.phase)
            if task.since == 0
            else ("send", task.kind, task.phase, who, str(task.since))
        )
        self._make(key, state, client, task)
        try:
            posted = await asyncio.shield(self._made[key])
            self._books.shelf.path(posted.blob.digest)
        except Exception:
            # A disk that was full may have room by now, and bytes that are gone are made again: the next asking tries
            # anew.
            self._made.pop(key, None)
            raise
        seal = self._books.shelf.envelopes.address(posted, client)
        return Assignment(replace(task), posted.header, posted.blob, seal)

    def close_for_all(self, state: State, task: Task) -> None:
        """Begin to close what every site gets that took part in the round before."""
        since = task.round - 1
        key = ("send", task.kind, task.phase, "*", str(since))
        self._make(key, state, "*", replace(task, since=since))

    def _make(self, key: tuple[str, ...], state: State, client: ClientId, task: Task) -> None:
        if key not in self._made:
            parcel = self._parcel(state, client, task)
            self._made[key] = asyncio.create_task(self._in_turn(parcel, task, "/".join(key)))

    async def _in_turn(self, parcel: Callable[[], State], task: Task, who: str) -> Posted:
        async with self._turns:
            return await asyncio.to_thread(self._put, parcel, task, who)

    def _parcel(self, state: State, client: ClientId, task: Task) -> Callable[[], State]:
        # Mixing for one site can be heavy (FedCAC reads kept updates): it happens in the worker thread.
        if task.since == 0:
            return lambda: self._books.half.welcome(state)
        return lambda: self._books.half.send(state, client, task)

    def _put(self, parcel: Callable[[], State], task: Task, who: str) -> Posted:
        spec = self._books.spec
        manifest = spec.manifest(task.kind, task.phase, "down")
        header = header_down(spec, task, state=self._digest)
        return self._books.shelf.put(parcel(), header, manifest, who=who)
