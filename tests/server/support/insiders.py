"""What a member of a run does that has turned hostile, over whatever line it has to its coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from pfl_common.errors import Refused
from pfl_common.spec.messages import OPENING, Assignment
from pfl_common.spec.run import Kind

TAKING_SECONDS = 0.05
"""So long one that comes and goes waits for a task."""


class Insider(Protocol):
    """All that a member can say."""

    @property
    def pause(self) -> float:
        """Seconds from one call of it to the next."""

    async def join(self) -> None: ...

    async def leave(self) -> None: ...

    async def next_task(self) -> Assignment | None:
        """Wait for work; None when the run is over."""

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Whether it is wanted."""

    async def decline(self, key: str, reason: str) -> None: ...

    async def answer(self, assignment: Assignment) -> None:
        """As an honest site does."""

    async def trickle(self, assignment: Assignment) -> None:
        """An upload byte by byte, as long as it is wanted."""


Attack: TypeAlias = Callable[[Insider], Awaitable[None]]


async def beat_for_ever(insider: Insider) -> None:
    """Take each task and say each time that a little more is done."""
    while (assignment := await insider.next_task()) is not None:
        await beat_on(insider, assignment)


async def beat_on(insider: Insider, assignment: Assignment) -> None:
    """Say each time that a little more is done, as long as that is wanted."""
    done, wanted = assignment.blob.size, True
    while wanted:
        await asyncio.sleep(insider.pause)
        done += 1
        wanted = await insider.heartbeat(assignment.key, done)


async def ask_for_ever(insider: Insider) -> None:
    """Ask for the same task again and again, and count from the beginning each time."""
    while (assignment := await insider.next_task()) is not None:
        await insider.heartbeat(assignment.key, 0)
        await asyncio.sleep(insider.pause)


async def open_for_ever(insider: Insider) -> None:
    """Say for ever that the data are still being read."""
    while True:
        await insider.heartbeat(OPENING, 0)
        await asyncio.sleep(insider.pause)


async def trickle(insider: Insider) -> None:
    """Send each upload byte by byte."""
    while (assignment := await insider.next_task()) is not None:
        with suppress(Refused):
            if assignment.task.kind is Kind.TRAIN:
                await insider.trickle(assignment)
            else:
                await insider.answer(assignment)


async def hold_the_end(insider: Insider) -> None:
    """Take part in all rounds, and never finish."""
    while (assignment := await insider.next_task()) is not None:
        with suppress(Refused):
            if assignment.task.kind is Kind.FINISH:
                await beat_on(insider, assignment)
            await insider.answer(assignment)


def decline(reason: str) -> Attack:
    """Decline each task at once."""

    async def act(insider: Insider) -> None:
        while (assignment := await insider.next_task()) is not None:
            with suppress(Refused):
                await insider.decline(assignment.key, reason)
            await asyncio.sleep(insider.pause)

    return act


async def come_and_go(insider: Insider) -> None:
    """Join, take the task, leave, and begin again."""
    while True:
        await insider.join()
        with suppress(TimeoutError):
            async with asyncio.timeout(TAKING_SECONDS):
                await insider.next_task()
        await insider.leave()
        await asyncio.sleep(insider.pause)


HOLDING: dict[str, Attack] = {
    "rising progress": beat_for_ever,
    "the same task again": ask_for_ever,
    "reading data": open_for_ever,
    "a byte at a time": trickle,
    "holding the end": hold_the_end,
}
ENDING: dict[str, Attack] = {
    "declines": decline("disk_full"),
    "a policy": decline("policy"),
    "comes and goes": come_and_go,
}
