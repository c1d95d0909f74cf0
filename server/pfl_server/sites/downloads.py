"""The parcels that sites fetch in one round: one for all, or one per site if the method says so; where downloads cross
as changes, one for those that were in the round before and one for all others.

The next round's are sealed while the last round's state is written to disk, so that neither waits.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from pfl_common.spec.manifest import DELTA
from pfl_common.spec.messages import Assignment, header_down
from pfl_common.spec.run import ClientId, Kind, Task
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.state import State
from pfl_server.envelopes import Posted
from pfl_server.store.round_base import Base, Sent, find_sent
from pfl_server.store.run_store import Books

AT_ONCE = 2
"""Replies that are made at the same time: each may hold a few models in memory, and one of the threads all share."""
NOTHING = Sent()
"""What is sent where downloads cross as values."""
WORTH = 64 << 20
"""Beyond so many bytes two who read and write at a time are in each other's way."""


class Downloads:
    """The parcels made from one base: one for all sites, or one per site if the method says PER_CLIENT."""

    def __init__(self, books: Books, digest: str, base: Base) -> None:
        self._books, self._digest, self._base = books, digest, base
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._made: dict[tuple[str, ...], asyncio.Task[Posted]] = {}
        self._sent: asyncio.Task[Sent] | None = None
        self.whole: frozenset[ClientId] = frozenset()
        """Sites that could not use a change when they were asked last."""

    async def sent(self, task: Task) -> Sent:
        """What sites hold of the encoded tensors once they have their download for a task; found once."""
        if task.kind is not Kind.TRAIN or self._books.spec.downlink != "delta":
            return NOTHING
        if self._sent is None:
            spec, base = self._books.spec, self._base
            self._sent = asyncio.create_task(asyncio.to_thread(find_sent, spec, task, base))
        try:
            return await asyncio.shield(self._sent)
        except Exception:
            # A disk that was full: the next asking tries anew.
            self._sent = None
            raise

    async def assignment(self, client: ClientId, task: Task) -> Assignment:
        """A task with its parcel; a newcomer gets what the method welcomes with."""
        sent = await self.sent(task)
        key = self._key(client, task, sent)
        self._make(key, client, task, sent)
        try:
            posted = await asyncio.shield(self._made[key])
            self._books.shelf.path(posted.blob.digest)
        except Exception:
            # A disk that was full may have room by now, and bytes that are gone are made again: the next asking tries
            # anew.
            self._made.pop(key, None)
            raise
        seal = self._books.shelf.envelopes.address(posted, client)
        return Assignment(task, posted.header, posted.blob, seal)

    async def close_for_all(self, task: Task) -> None:
        """Begin to close what every site gets that took part in the round before."""
        task = replace(task, since=task.round - 1)
        sent = await self.sent(task)
        self._make(self._key("*", task, sent), "*", task, sent)

    def _key(self, client: ClientId, task: Task, sent: Sent) -> tuple[str, ...]:
        """The name of a parcel among those of this round."""
        if sent.manifest:
            as_change = sent.is_change_for(task) and client not in self.whole
            return (DELTA if as_change else "whole", task.kind, task.phase)
        if self._books.method.sends_alike:
            # How long a site was away makes no difference: with few of many asked, each has been away for another time.
            return ("alike", task.kind, task.phase)
        if task.is_first:
            return ("welcome", task.kind, task.phase)
        who = client if self._books.method.per_client else "*"
        earlier = [str(task.before)] if task.before else []
        return ("send", task.kind, task.phase, who, str(task.since), *earlier)

    def _make(self, key: tuple[str, ...], client: ClientId, task: Task, sent: Sent) -> None:
        if key not in self._made:
            own = client if key[0] == "send" and self._books.method.per_client else ""
            self._made[key] = asyncio.create_task(self._in_turn(key, client, task, own, sent))

    async def _in_turn(
        self, key: tuple[str, ...], client: ClientId, task: Task, own: ClientId, sent: Sent
    ) -> Posted:
        put = self._put_delta if key[0] == DELTA else self._put
        async with self._turns:
            # Mixing for one site can be heavy (FedCAC reads kept updates): it happens in the worker thread.
            return await asyncio.to_thread(put, "/".join(key), client, task, own, sent)

    def _put(self, who: str, client: ClientId, task: Task, own: ClientId, sent: Sent) -> Posted:
        spec, half, state = self._books.spec, self._books.half, self._base.state
        parcel = half.welcome(state) if task.is_first else half.send(state, client, task)
        manifest = spec.manifest(task.kind, task.phase, "down")
        header = header_down(spec, task, state=self._digest, sent=sent.digest)
        return self._books.shelf.put(parcel | sent.values, header, manifest, who=who, site=own)

    def _put_delta(self, who: str, client: ClientId, task: Task, own: ClientId, sent: Sent) -> Posted:
        parcel = self._books.half.send(self._base.state, client, task)
        header = header_down(self._books.spec, task, state=self._digest, sent=sent.digest, as_delta=True)
        changes = Changes(sent.before, State(), keeps_rest=False)
        return self._books.shelf.put(parcel, header, sent.manifest, who=who, site=own, changes=changes)


class Ahead:
    """The prepared download of a round that is not open yet; no site gets it before the round opens."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._prepared: tuple[Task, str, Downloads] | None = None
        self._preparing: asyncio.Task[None] | None = None

    async def settle(self, base: Base, following: Task | None) -> Base:
        """Make a round's state last; meanwhile close what most sites will fetch in the round that follows."""
        loop = asyncio.get_running_loop()
        digest: asyncio.Future[str] = loop.create_future()

        def tell(found: str) -> None:
            loop.call_soon_threadsafe(_settle, digest, found)

        if following is not None and self._worth(base.state):
            self._preparing = asyncio.create_task(self._prepare(following, base, digest))
        try:
            return await asyncio.to_thread(self._books.settle, base, tell)
        except BaseException:
            digest.cancel()
            raise

    def downloads(self, task: Task, digest: str, base: Base) -> Downloads:
        """The downloads of an attempt: those that were prepared for it, or new ones."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[:2] == (task, digest):
            return prepared[2]
        return Downloads(self._books, digest, base)

    async def _prepare(self, task: Task, base: Base, digest: asyncio.Future[str]) -> None:
        # Whatever the disk has no room for is made when a site asks.
        with suppress(asyncio.CancelledError, OSError):
            downloads = Downloads(self._books, await digest, base)
            self._prepared = task, digest.result(), downloads
            await downloads.close_for_all(task)

    def _worth(self, state: State) -> bool:
        """A broadcast of a usual size; a reply of each site's own is made when it asks."""
        small = sum(tensor.nbytes for tensor in state.values()) <= WORTH
        return small and not self._books.method.per_client


def _settle(digest: asyncio.Future[str], found: str) -> None:
    if not digest.done():
        digest.set_result(found)
