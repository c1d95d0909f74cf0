"""Visitors: sites that take part in no round and fetch the newest shared state, to fit their own part to it.

A visitor is no member: it is no candidate of any round, nobody waits for it, and it hands nothing in. Its parcel does
not lie on the run's shelf, which is cleared with each round of a run that goes on.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from pfl_common.errors import Refused
from pfl_common.spec.messages import Assignment, Joined, Visited, header_down
from pfl_common.spec.run import ClientId, Kind
from pfl_server.envelopes import Posted
from pfl_server.store.shelf import Shelf

if TYPE_CHECKING:
    from pfl_server.store.run_store import Books

KEPT_SECONDS = 600.0
"""So long a parcel stays after it was last asked for, though there is a newer state: a slow line needs its time."""
MOST_KEPT = 4
"""Each is as large as a model."""


@dataclass
class _Kept:
    """A state that was closed for visitors, and when one last asked for it."""

    posted: Posted
    folder: Path
    asked: float


class Visits:
    """The parcels of one run's visitors, by the round that each is the state after."""

    def __init__(self, books: Books, clock: Callable[[], float] = monotonic) -> None:
        self._books, self._clock = books, clock
        self._folder = books.shelf.folder.parent / "visits"
        # Of an earlier life of the coordinator: who was fetching one asks for the newest again.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._kept: dict[int, _Kept] = {}
        self._turn = asyncio.Lock()

    async def receive(self, site: ClientId) -> Visited | None:
        """The run, and its state after the last committed round; None while there is no such round."""
        books = self._books
        if why := books.method.no_newcomer:
            raise Refused("no_newcomers", f"{books.method.name} takes no site after the run. {why}")
        number = max(books.journal.committed(), default=0)
        if not number:
            return None
        async with self._turn:
            await asyncio.to_thread(self._tidy, number)
            if number not in self._kept:
                self._kept[number] = await asyncio.to_thread(self._post, number)
        kept = self._kept[number]
        kept.asked = self._clock()
        seal = books.envelopes.address
        joined = Joined(books.spec.to_json(), books.init.blob, seal(books.init, site), books.envelopes.card)
        task = books.task(Kind.FINISH, number, 1)
        return Visited(
            joined, Assignment(task, kept.posted.header, kept.posted.blob, seal(kept.posted, site))
        )

    def find(self, digest: str) -> Path | None:
        """The file with these bytes, if a visitor was told of them."""
        for kept in self._kept.values():
            if kept.posted.blob.digest == digest:
                kept.asked = self._clock()
                return kept.folder / digest
        return None

    def _post(self, number: int) -> _Kept:
        """Close the state after a round as every newcomer gets it."""
        books, task = self._books, self._books.task(Kind.FINISH, number, 1)
        found = books.checkpoints.load(upto=number)
        if found is None or found[0] != number:
            raise Refused("unknown_blob", f"the state after round {number} is not on the disk (any more)")
        shelf = Shelf(self._folder / f"{number:06d}", books.envelopes)
        header = header_down(books.spec, task, state=books.digest_after(number))
        manifest = books.spec.manifest(task.kind, task.phase, "down")
        posted = shelf.put(books.half.welcome(found[1]), header, manifest)
        return _Kept(posted, shelf.folder, self._clock())

    def _tidy(self, newest: int) -> None:
        """Remove older states that nobody has asked for in a while, and the oldest if there are too many."""
        limit = self._clock() - KEPT_SECONDS
        others = sorted((number for number in self._kept if number != newest), reverse=True)
        for place, number in enumerate(others):
            if place >= MOST_KEPT - 1 or self._kept[number].asked < limit:
                shutil.rmtree(self._kept.pop(number).folder, ignore_errors=True)
