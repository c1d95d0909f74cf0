"""A line that follows a coordinator of this machine to a new address after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from pfl_client.connection.link import INIT, Link, Unreachable
from pfl_common.spec.messages import Assignment, Blob, Gathering, Joined, Mark, Offer, Over, Receipt, Scores
from pfl_common.spec.run import Description

log = structlog.get_logger("pfl.site")

Answer = TypeVar("Answer")

LOOK_SECONDS = 2.0
"""Not more often than this is it looked for."""


class Line(Link, Protocol):
    """A Link that can be closed and whose certificate can be renewed."""

    async def close(self) -> None:
        """Hang up; calls under way end as `Unreachable`."""

    async def renew(self) -> bool:
        """Get a new certificate if the present one nears its end; whether it did."""


class MovingLink:
    """A `Link` to a coordinator that may move: `look` returns its present address, or nothing."""

    def __init__(self, address: str, *, dial: Callable[[str], Line], look: Callable[[], str | None]) -> None:
        self._dial, self._look = dial, look
        self._place = _Place(address, dial(address))
        self._looked = float("-inf")

    async def aclose(self) -> None:
        """Hang up."""
        await self._place.line.close()

    async def join(self, description: Description) -> Joined | Gathering | None:
        """Register."""
        return await self._call(lambda line: line.join(description))

    async def next_task(self, marks: tuple[Mark, ...]) -> Assignment | Over | None:
        """Wait for work."""
        return await self._call(lambda line: line.next_task(marks))

    async def fetch(self, blob: Blob, into: Path, *, kind: str = INIT) -> None:
        """Bring bytes into a file."""
        await self._call(lambda line: line.fetch(blob, into, kind=kind))

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        """Hand an upload in."""
        return await self._call(lambda line: line.submit(offer, parcel))

    async def report(self, key: str, scores: Scores) -> None:
        """Hand in an evaluation."""
        await self._call(lambda line: line.report(key, scores))

    async def decline(self, key: str, reason: str, words: str) -> None:
        """Say no to a task."""
        await self._call(lambda line: line.decline(key, reason, words))

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far a task is."""
        return await self._call(lambda line: line.heartbeat(key, progress))

    async def pause(self) -> None:
        """Say that it will come back."""
        await self._place.line.pause()

    async def leave(self) -> None:
        """Say goodbye."""
        await self._place.line.leave()

    async def renew(self) -> bool:
        """Get a new certificate in time."""
        return await self._call(lambda line: line.renew())

    async def _call(self, ask: Callable[[Line], Awaitable[Answer]]) -> Answer:
        place = self._place
        try:
            return await _unless_left(place, ask)
        except Unreachable:
            # Every call is safe to repeat: where it is known to be now, it is asked at once.
            if place is self._place and not await self._move():
                raise
        return await _unless_left(self._place, ask)

    async def _move(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        place, address = self._place, await asyncio.to_thread(self._look)
        if place is not self._place or address is None or address == place.address:
            return place is not self._place
        log.warning("the coordinator is at another address now", before=place.address, now=address)
        self._place = _Place(address, self._dial(address))
        place.left.set()
        await place.line.close()
        return True


@dataclass
class _Place:
    """An address, the line to it, and whether the coordinator has left it."""

    address: str
    line: Line
    left: asyncio.Event = field(default_factory=asyncio.Event)


async def _unless_left(place: _Place, ask: Callable[[Line], Awaitable[Answer]]) -> Answer:
    """Ask, but do not go on trying where the coordinator is no more."""
    asked = asyncio.ensure_future(ask(place.line))
    left = asyncio.create_task(place.left.wait())
    try:
        await asyncio.wait((asked, left), return_when=asyncio.FIRST_COMPLETED)
        if left.done() and not asked.done():
            raise Unreachable(f"the coordinator is not at {place.address} any more")
        return await asked
    finally:
        left.cancel()
        asked.cancel()
        await asyncio.gather(asked, left, return_exceptions=True)
