"""Waiting that is called off for all at once: what they wait for will not come, and each says why in its own words.

A task for each that waits, beside one that watches, costs more than most of what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


class CalledOff(Exception):
    """There is nothing to wait for any more."""


class Waiting:
    """All who wait for the same side: a line, another process, a port that closes."""

    def __init__(self) -> None:
        self._over = False
        self._open: set[asyncio.Timeout] = set()

    def call_off(self) -> None:
        """Who waits now, and who begins to later, hears `CalledOff`."""
        if self._over:
            return
        self._over, now = True, asyncio.get_running_loop().time()
        for limit in self._open:
            limit.reschedule(now)

    async def until_off(self, work: Awaitable[Result]) -> Result:
        """The work's result; CalledOff if that will not come, and the work is cancelled then."""
        if self._over:
            asyncio.ensure_future(work).cancel()
            raise CalledOff
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._open.add(limit)
                return await work
        except TimeoutError:
            if not limit.expired():  # the work's own
                raise
            raise CalledOff from None
        finally:
            self._open.discard(limit)
