"""Heartbeats of a working site: without them the coordinator gives it up when its lease ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from pfl_client.connection.link import Link, Unreachable
from pfl_client.connection.partial_file import reached
from pfl_common.errors import Refused

Answer = TypeVar("Answer")
Given = ParamSpec("Given")

HEARTBEAT_SECONDS = 1.0


class Heart:
    """While open, reports a task's progress to the coordinator every second: samples trained, bytes fetched, and the
    seconds in which the daemon itself works on its files.
    """

    def __init__(
        self, link: Link, key: str, download: Path, *, at_work: bool = False, hides: bool = False
    ) -> None:
        """With `hides` it is told that there is progress, not how much: that would be a number of samples."""
        self._link, self._key, self._download = link, key, download
        self._done, self._hides, self._seen, self._rises = 0, hides, -1, 0
        self._at_work, self._came = at_work, 0
        self._first: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    def beat(self, samples: int) -> None:
        """Count samples that were trained since the last call."""
        self._done += samples

    async def during(self, act: Callable[Given, Answer], *given: Given.args, **named: Given.kwargs) -> Answer:
        """Open or close a parcel in a thread. With gigabytes that takes longer than a lease, and no byte crosses."""
        self._at_work = True
        try:
            return await asyncio.to_thread(act, *given, **named)
        finally:
            self._at_work = False

    async def __aenter__(self) -> Heart:
        # Most small tasks are over before the first beat is due.
        self._first = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._begin)
        return self

    def _begin(self) -> None:
        self._beating = asyncio.create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        if self._first:
            self._first.cancel()
        if self._beating:
            self._beating.cancel()
            # Not awaited itself: its end would hide that the site is told to stop meanwhile.
            await asyncio.wait({self._beating})
            if not self._beating.cancelled():
                self._beating.result()

    def _tell(self, done: int) -> int:
        if not self._hides:
            return done
        if done > self._seen:
            self._seen, self._rises = done, self._rises + 1
        return self._rises

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._done += self._at_work
            began = clock()
            with suppress(Unreachable, Refused):
                # What came has come, also when its file serves for something else by now.
                self._came = max(self._came, reached(self._download))
                done = self._done + self._came
                await self._link.heartbeat(self._key, self._tell(done))
            # The coordinator holds a beat for about as long as it is to the next one.
            await asyncio.sleep(max(0.0, HEARTBEAT_SECONDS - (clock() - began)))
