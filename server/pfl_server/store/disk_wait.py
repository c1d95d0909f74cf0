"""Handles what passes by waiting, a full disk or no descriptor left: it is reported, and waited out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import ParamSpec, TypeVar

import structlog

from pfl_common.app.backoff import BackOff
from pfl_common.files.full import is_crowded, is_full

log = structlog.get_logger("pfl.room")

P = ParamSpec("P")
T = TypeVar("T")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 15.0
SAY_AGAIN_SECONDS = 300.0
REMEMBERED_SECONDS = 30.0
"""How long a site that was sent away is worth a word: if there still is no room, it has come again by then."""


@dataclass(frozen=True)
class Lack:
    """What there is too little of, and what the operator can do."""

    seen: str
    advice: str


CROWDED = Lack(
    "too many files and connections are open",
    "let this program have more (LimitNOFILE, ulimit -n), or close its ports to strangers; it goes on by itself",
)


class Room:
    """The disk a run lies on: writers ask here, and wait here while it is full."""

    def __init__(self, folder: Path) -> None:
        self._full = Lack(f"no room on the disk of {folder}", "make room, it goes on by itself")
        self._waiting: Counter[Lack] = Counter()
        self.give_back: Callable[[], int] = lambda: 0
        """Removes what lies there for speed alone, before anybody is made to wait; gives its bytes."""
        self._sent_away, self._lacked, self._since = "", self._full, float("-inf")

    @property
    def words(self) -> str:
        """A notice for the operator while something waits; empty while there is room."""
        for lack in (self._full, CROWDED):
            if self._waiting[lack]:
                return f"{lack.seen}; {lack.advice}"
        recently, lack = monotonic() - self._since < REMEMBERED_SECONDS, self._lacked
        return f"{lack.seen}: {self._sent_away}; {lack.advice}" if recently else ""

    def lack(self, words: str, *, crowded: bool = False) -> None:
        """A site was sent away for want of room, or of a descriptor; it will come again."""
        asyncio.get_running_loop().run_in_executor(None, self.give_back)
        words, lacked = words or "a site was sent away", CROWDED if crowded else self._full
        if monotonic() - self._since >= REMEMBERED_SECONDS:
            log.error(lacked.seen, seen=words, advice=lacked.advice)
        self._sent_away, self._lacked, self._since = words, lacked, monotonic()

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
            lack = self._find_lack(error)
        self._waiting[lack] += 1
        try:
            return await self._repeat(lambda: act(*words, **named), lack)
        finally:
            self._waiting[lack] -= 1

    def _find_lack(self, error: Exception) -> Lack:
        """What there is too little of; any other trouble is raised again."""
        if is_full(error):
            return self._full
        if is_crowded(error):
            return CROWDED
        raise error

    async def _repeat(self, act: Callable[[], Awaitable[T]], lack: Lack) -> T:
        clock = asyncio.get_running_loop().time
        began, said, pauses = clock(), float("-inf"), BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            # What lies on the disk for speed alone is no help where descriptors are lacking.
            if lack is CROWDED or not await asyncio.to_thread(self.give_back):
                if clock() - said >= SAY_AGAIN_SECONDS:
                    log.error(lack.seen, waited_seconds=round(clock() - began), advice=lack.advice)
                    said = clock()
                await asyncio.sleep(pauses.take())
            try:
                done = await act()
            except Exception as error:
                self._find_lack(error)
            else:
                log.info("it goes on", waited_seconds=round(clock() - began), after=lack.seen)
                return done
