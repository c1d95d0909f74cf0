"""Repeats what fails for a while: the coordinator is silent, the disk is full, the trainer has died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog

from pfl_client.connection.link import NotAdmitted, Unreachable, lacks_room
from pfl_client.daemon.status import Watch
from pfl_client.trainer_process.api import TrainerLost
from pfl_client.trainer_process.task_errors import DiskFull, disk_full
from pfl_common.app.backoff import BackOff
from pfl_common.errors import Refused

log = structlog.get_logger("pfl.site")
Answer = TypeVar("Answer")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
SHORTEST_PAUSE = 0.05
"""However short a lease a coordinator names."""
QUICK_SECONDS, MOST_QUICK = 0.2, 20
"""A coordinator holds a call that brings nothing. One that answers so quickly, so many times in a row, would keep its
sites asking all the time: from then on they pause, longer each time.
"""
SAY_AGAIN_SECONDS = 60.0
"""How often a coordinator that is away for long is worth a line."""


class Retry:
    """How long a site waits before it tries again, and what is seen of it meanwhile."""

    def __init__(self, watch: Watch, state: Path) -> None:
        """`state` is the site's folder, on the disk that may have no room."""
        self._watch, self._state = watch, state
        self.longest = LONGEST_PAUSE
        self._in_vain = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        self._calm, self._quick = BackOff(FIRST_PAUSE, LONGEST_PAUSE), 0

    def fit(self, lease_seconds: float) -> None:
        """Limit pauses to half a lease."""
        # A restarted coordinator waits a lease's time for its sites: none of them may sleep through it.
        self.longest = self._in_vain.longest = max(SHORTEST_PAUSE, min(LONGEST_PAUSE, lease_seconds / 2))

    async def pause_in_vain(self) -> None:
        """Pause after a task that failed, longer each time: a round that keeps failing is not retried at once."""
        self._watch.doing = "waiting"
        await asyncio.sleep(self._in_vain.take())

    def went_well(self) -> None:
        """A task is done: after the next that fails the pause is the first one again."""
        self._in_vain.begin_again()

    async def calm(self, took: float) -> None:
        """After an answer that brought nothing and took so many seconds: pause, if too many came at once."""
        if took >= QUICK_SECONDS:
            self._quick = 0
            self._calm.begin_again()
            return
        self._quick += 1
        if self._quick > MOST_QUICK:
            await asyncio.sleep(self._calm.take())

    async def until_answered(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call until the coordinator answers: a line that is down is no reason to give up, only to wait longer."""
        pauses = BackOff(FIRST_PAUSE, self.longest, varied=True)
        silent_since, said = 0.0, float("-inf")
        clock = asyncio.get_running_loop().time
        while True:
            try:
                answer = await call()
            except (Unreachable, Refused, NotAdmitted) as why:
                lacking = lacks_room(why)
                # A coordinator that refuses does answer.
                self._watch.connected = bool(lacking) or not isinstance(why, Unreachable)
                if self._watch.connected and not lacking:
                    raise
                if lacking:
                    self._watch.refuse("no_room")
                silent_since = silent_since or clock()
                tell = not pauses.at_longest or clock() - said >= SAY_AGAIN_SECONDS
                pause = pauses.take()
                if tell:
                    seen = "the coordinator has no room" if lacking else "the coordinator does not answer"
                    log.warning(seen, why=lacking or str(why), again_in_seconds=round(pause, 1))
                    said = clock()
                await asyncio.sleep(pause)
            else:
                if silent_since:
                    log.info("the coordinator answers again", after_seconds=round(clock() - silent_since))
                self._watch.connected = True
                return answer

    async def until_room(
        self, act: Callable[[], Awaitable[Answer]], give_back: Callable[[], bool] = lambda: False
    ) -> Answer:
        """Do something that needs room on this site's disk. If there is none, `give_back` removes files kept only for
        speed and says whether there were any; without any, the site logs that its disk is full and waits for room.
        """
        pauses, said = BackOff(FIRST_PAUSE, self.longest), False
        while True:
            try:
                with disk_full(self._state):
                    done = await act()
            except DiskFull as full:
                if await asyncio.to_thread(give_back):
                    continue
                before, self._watch.doing = self._watch.doing, "waiting for room"
                if not said:
                    log.error("waiting for room on the disk", seen=full.seen, advice=full.advice)
                said = True
                await asyncio.sleep(pauses.take())
                self._watch.doing = before
            else:
                if said:
                    log.info("there is room again")
                return done

    async def with_trainer(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask the trainer. If it dies it is started once more; a request that kills it twice is given up."""
        try:
            return await self._count_losses(ask)
        except TrainerLost as lost:
            log.warning("the trainer ended, once more", how=str(lost))
            return await self._count_losses(ask)

    async def _count_losses(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return await ask()
        except TrainerLost:
            self._watch.lose_trainer()
            raise
