"""Seals the next round's download while the last round's state is written to disk, so that neither waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pfl_common.spec.run import Task
from pfl_common.tensors.state import State
from pfl_server.sites.downloads import Downloads
from pfl_server.store.run_store import Books

WORTH = 64 << 20
"""Beyond so many bytes two who read and write at a time are in each other's way."""


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
