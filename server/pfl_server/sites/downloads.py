"""The parcels that sites fetch in one round: one for all, or one per site if the method says so.

The next round's are sealed while the last round's state is written to disk, so that neither waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pfl_common.spec.messages import Assignment, header_down
from pfl_common.spec.run import ClientId, Task
from pfl_common.tensors.state import State
from pfl_server.envelopes import Posted
from pfl_server.store.run_store import Books

AT_ONCE = 2
"""Replies that are made at the same time: each may hold a few models in memory, and one of the threads all share."""
WORTH = 64 << 20
"""Beyond so many bytes two who read and write at a time are in each other's way."""


class Downloads:
    """The parcels made from one state: one for all sites, or one per site if the method says PER_CLIENT."""

    def __init__(self, books: Books, digest: str) -> None:
        self._books, self._digest = books, digest
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._made: dict[tuple[str, ...], asyncio.Task[Posted]] = {}

    async def assignment(self, state: State, client: ClientId, task: Task) -> Assignment:
        """A task with its parcel; a newcomer gets what the method welcomes with."""
        who = client if self._books.method.per_client else "*"
        earlier = [str(task.before)] if task.before else []
        key = (
            ("welcome", task.kind, task.phase)
            if task.is_first
            else ("send", task.kind, task.phase, who, str(task.since), *earlier)
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
            own = client if key[0] == "send" and self._books.method.per_client else ""
            self._made[key] = asyncio.create_task(self._in_turn(parcel, task, "/".join(key), own))

    async def _in_turn(self, parcel: Callable[[], State], task: Task, who: str, own: ClientId) -> Posted:
        async with self._turns:
            return await asyncio.to_thread(self._put, parcel, task, who, own)

    def _parcel(self, state: State, client: ClientId, task: Task) -> Callable[[], State]:
        # Mixing for one site can be heavy (FedCAC reads kept updates): it happens in the worker thread.
        if task.is_first:
            return lambda: self._books.half.welcome(state)
        return lambda: self._books.half.send(state, client, task)

    def _put(self, parcel: Callable[[], State], task: Task, who: str, own: ClientId) -> Posted:
        spec = self._books.spec
        manifest = spec.manifest(task.kind, task.phase, "down")
        header = header_down(spec, task, state=self._digest)
        return self._books.shelf.put(parcel(), header, manifest, who=who, site=own)


class Ahead:
    """The prepared download of a round that is not open yet; no site gets it before the round opens."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._prepared: tuple[Task, str, Downloads] | None = None
        self._preparing: asyncio.Task[None] | None = None

    async def settle(self, number: int, state: State, following: Task | None) -> State:
        """Make a round's state last; meanwhile close what most sites will fetch in the round that follows."""
        loop = asyncio.get_running_loop()
        digest: asyncio.Future[str] = loop.create_future()

        def tell(found: str) -> None:
            loop.call_soon_threadsafe(_settle, digest, found)

        if following is not None and self._worth(state):
            self._preparing = asyncio.create_task(self._prepare(following, state, digest))
        try:
            return await asyncio.to_thread(self._books.settle, number, state, tell)
        except BaseException:
            digest.cancel()
            raise

    def downloads(self, task: Task, digest: str) -> Downloads:
        """The downloads of an attempt: those that were prepared for it, or new ones."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[:2] == (task, digest):
            return prepared[2]
        return Downloads(self._books, digest)

    async def _prepare(self, task: Task, state: State, digest: asyncio.Future[str]) -> None:
        with suppress(asyncio.CancelledError):
            downloads = Downloads(self._books, await digest)
            self._prepared = task, digest.result(), downloads
            downloads.close_for_all(state, task)

    def _worth(self, state: State) -> bool:
        """A broadcast of a usual size; a reply of each site's own is made when it asks."""
        small = sum(tensor.nbytes for tensor in state.values()) <= WORTH
        return small and not self._books.method.per_client


def _settle(digest: asyncio.Future[str], found: str) -> None:
    if not digest.done():
        digest.set_result(found)
