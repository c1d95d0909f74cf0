"""Frees the updates in the spool that no kept checkpoint needs any more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from pfl_common.app.prompt_work import work_on
from pfl_common.spec.manifest import full_size
from pfl_server.store.checkpoints import GENERATIONS
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books


class SpoolSweep:
    """Sweeps the spool whenever an attempt has ended, one sweep at a time."""

    def __init__(self, books: Books, room: Room) -> None:
        self._books, self._room = books, room
        self._sweeping: asyncio.Task[int] | None = None

    async def sweep(self) -> None:
        """Let go of updates that no kept checkpoint needs; the last round's stay, to make its checkpoint again."""
        if self._sweeping is not None:
            await self._sweeping
        # What may go lies there now, before the next round brings more; what becomes of it need not be waited for.
        generations, committed = self._books.checkpoints.generations(), self._books.journal.committed()
        kept = {name for checkpoint in generations for name in checkpoint.kept}
        there = self._books.spool.files()
        self._sweeping = asyncio.create_task(self._free(there, kept, committed))

    async def _free(self, there: Sequence[Path], kept: set[str], committed: Mapping[int, int]) -> int:
        last = max(committed, default=0)
        # While the first state is not far, all since then: it can be begun from again.
        for number in range(1 if last <= GENERATIONS else last, last + 1):
            receipts = await self._room.have(self._books.journal.receipts.soon, number, committed[number])
            kept |= {name for _, name in receipts.values()}
        if last <= GENERATIONS:
            kept |= {update.id for update in self._books.first.kept.values()}
        doomed = [path for path in there if path.stem not in kept]
        size = full_size(self._books.spec.init_manifest) if doomed else 0
        return await work_on(size, self._books.spool.free, doomed)

    async def give_back(self) -> None:
        """After the last round, remove the files kept for uploads to overwrite: they would lie there for good."""
        if self._sweeping is not None:
            await self._sweeping
        await asyncio.to_thread(self._books.spool.blanks.clear)
