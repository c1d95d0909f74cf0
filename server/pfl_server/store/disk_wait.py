"""Handles a full disk: the coordinator reports it, waits, and continues by itself once there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import ParamSpec, TypeVar

import structlog

from pfl_common.app.backoff import BackOff
from pfl_common.files.full import is_full

log = structlog.get_logger("pfl.room")

P = ParamSpec("P")
T = TypeVar("T")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 15.0
SAY_AGAIN_SECONDS = 300.0
REMEMBERED_SECONDS = 30.0
"""How long a site that was sent away is worth a word: if there still is no room, it has come again by then."""

ADVICE = "make room, it goes on by itself"


class Room:
    """The disk a run lies on: writers ask here, and wait here while it is full."""

    def __init__(self, folder: Path) -> None:
        self._full = f"no room on the disk of {folder}"
        self._waiting = 0
        self.give_back: Callable[[], int] = lambda: 0
        """Removes what lies there for speed alone, before anybody is made to wait; gives its bytes."""
        self._sent_away, self._since = "", float("-inf")

    @property
    def words(self) -> str:
        """A notice for the operator while something waits; empty while there is room."""
        if self._waiting:
            return f"{self._full}; {ADVICE}"
        recently = monotonic() - self._since < REMEMBERED_SECONDS
        return f"{self._full}: {self._sent_away}; {ADVICE}" if recently else ""

    def lack(self, words: str) -> None:
        """A site was sent away for want of room; it will come again."""
        asyncio.get_running_loop().run_in_executor(None, self.give_back)
        words = words or "a site was sent away"
        if monotonic() - self._since >= REMEMBERED_SECONDS:
            log.error(self._full, seen=words, advice=ADVICE)
        self._sent_away, self._since = words, monotonic()

    def relieve(self) -> None:
        """There was room for a site's upload."""
        if self._sent_away:
            log.info("there is room again for what sites send")
        self._sent_away, self._since = "", float("-inf")

    async def have(self, act: Callable[P, Awaitable[T]], *words: P.args, **named: P.kwargs) -> T:
        """Do something that writes, and do it again until there is room for it; it must be safe to repeat."""
        try:
            return await act(*words, **named)
        except Exception as error:
            if not is_full(error):
                raise
        self._waiting += 1
        try:
            return await self._repeat(lambda: act(*words, **named))
        finally:
            self._waiting -= 1

    async def _repeat(self, act: Callable[[], Awaitable[T]]) -> T:
        clock = asyncio.get_running_loop().time
        began, said, pauses = clock(), float("-inf"), BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            if not await asyncio.to_thread(self.give_back):
                if clock() - said >= SAY_AGAIN_SECONDS:
                    log.error(self._full, waited_seconds=round(clock() - began), advice=ADVICE)
                    said = clock()
                await asyncio.sleep(pauses.take())
            try:
                done = await act()
            except Exception as error:
                if not is_full(error):
                    raise
            else:
                log.info("there is room again", waited_seconds=round(clock() - began))
                return done
