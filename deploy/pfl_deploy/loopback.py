"""The two seams of a federation inside one process: a Link without a network and a Bench without a process.

Everything on both sides of them is the code that runs over the network; nothing of a method or a round is here.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from pfl_client.bench import DataFolder, Done, Job, Progress
from pfl_client.trainer.workbench import Workbench
from pfl_common.errors import Refused
from pfl_common.messages import Assignment, Blob, Joined, Mark, Offer, Over, Receipt, Scores
from pfl_common.run import ClientId, Description
from pfl_server.desk import Desk

WAIT_SECONDS = 3600.0


class LoopbackLink:
    """Hands a site's calls to the coordinator's desk; files are copied as the network would."""

    def __init__(self, site: ClientId, desk: Desk) -> None:
        self._site, self._desk = site, desk

    async def join(self, description: Description) -> Joined | None:
        """Register."""
        return await self._desk.join(self._site, description)

    async def next_task(self, marks: tuple[Mark, ...]) -> Assignment | Over | None:
        """Wait for work."""
        return await self._desk.next_task(self._site, marks, wait=WAIT_SECONDS)

    async def fetch(self, blob: Blob, into: Path) -> None:
        """Copy the file."""
        await asyncio.to_thread(shutil.copyfile, self._desk.blob(blob.digest), into)

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        """Offer, copy, and have it verified."""
        answer = await self._desk.offer(self._site, offer)
        if isinstance(answer, Receipt):
            return answer
        await asyncio.to_thread(shutil.copyfile, parcel, answer.path)
        return await self._desk.stored(self._site, offer.key)

    async def report(self, key: str, scores: Scores) -> None:
        """Hand in an evaluation."""
        await self._desk.report(self._site, key, scores)

    async def decline(self, key: str, reason: str, words: str) -> None:
        """Say no to a task."""
        await self._desk.decline(self._site, key, reason, words)

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far the task is."""
        return self._desk.heartbeat(self._site, key, progress)

    async def leave(self) -> None:
        """Say goodbye; a desk that never knew the site does not mind."""
        try:
            await self._desk.leave(self._site)
        except Refused:
            return


class LoopbackBench:
    """A site's trainer in a worker thread; sites take turns, as torch's generator belongs to the process."""

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn, self._bench = turn, Workbench()

    async def describe(self, folder: DataFolder) -> Description:
        """Look at the data."""
        async with self._turn:
            return await asyncio.to_thread(self._bench.describe, folder)

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Take the run's specification and read the data."""
        async with self._turn:
            await asyncio.to_thread(self._bench.open, folder, spec, init)

    async def work(self, job: Job, progress: Progress) -> Done:
        """Do a task when the turn comes; to wait for it is progress too, or the lease of a patient site would end."""
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(_tell(progress))
        try:
            async with self._turn:
                waiting.cancel()

                def tell(samples: int) -> None:
                    loop.call_soon_threadsafe(progress, samples)

                return await asyncio.to_thread(self._bench.work, job, tell)
        finally:
            waiting.cancel()

    async def close(self) -> None:
        """Nothing to end: the thread was borrowed."""


async def _tell(progress: Progress) -> None:
    while True:
        progress(1)
        await asyncio.sleep(0.5)
