"""Connections to the HTTP port: few at once, and none for longer than a request and its answer take.

uvicorn waits for ever for the first byte of a request, for the rest of one, and for a reader that does not read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 10.0
"""From a connection, or from the answer before, to the end of a request's headers."""
ANSWER_SECONDS = 60.0
"""From there until the last byte of the answer is on its way."""


class BoundedConnection(H11Protocol):
    """One connection of a few: when there are too many, the one that has asked nothing for longest goes."""

    most = 64
    head_seconds, answer_seconds = HEAD_SECONDS, ANSWER_SECONDS

    def __init__(self, *words: Any, **named: Any) -> None:  # those of uvicorn's own
        super().__init__(*words, **named)
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no answer is under way."""
        cycle: RequestResponseCycle | None = self.cycle  # none before the first, whatever its type says
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Somebody has connected."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            self._longest_idle().give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request, which alone bring it no more time."""
        before, idle = self.cycle, self.is_idle
        super().data_received(data)
        if self.cycle is not before or idle != self.is_idle:
            self._wait()

    def on_response_complete(self) -> None:
        """An answer is out; another request may have come meanwhile."""
        super().on_response_complete()
        self._wait()

    def give_up(self) -> None:
        """Close at once: what is not yet sent is lost."""
        # Not counted from now on: many may come before the loop has closed this one.
        self.connections.discard(self)
        self.transport.abort()

    def _wait(self) -> None:
        """Begin to wait for what comes next."""
        if self._timer is not None:
            self._timer.cancel()
        self._since = self.loop.time()
        seconds = self.head_seconds if self.is_idle else self.answer_seconds
        self._timer = self.loop.call_later(seconds, self.give_up)

    def _longest_idle(self) -> BoundedConnection:
        idle = (one for one in self.connections if isinstance(one, BoundedConnection) and one.is_idle)
        return min(idle, key=lambda one: one._since, default=self)


def at_most(number: int) -> type[BoundedConnection]:
    """Connections of a port that takes so many."""
    return type("BoundedConnection", (BoundedConnection,), {"most": number})
