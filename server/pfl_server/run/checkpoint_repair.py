"""Finds the newest shared state of a run; where checkpoints are damaged, makes it again from the updates counted."""

from __future__ import annotations

from pfl_common.errors import StateError
from pfl_common.spec.run import Kind
from pfl_common.tensors.state import State
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.store.spool import PlainTally


async def load_newest(books: Books, room: Room) -> State:
    """The state after the last committed round; the first one before any was."""
    committed = books.journal.committed()
    last = max(committed, default=0)
    found = books.checkpoints.load(upto=last)
    number, state = found if found else (0, books.first)
    for missing in range(number + 1, last + 1):
        state = await _remake(books, room, missing, committed[missing], before=state)
    return state


async def _remake(books: Books, room: Room, number: int, attempt: int, *, before: State) -> State:
    """A checkpoint was damaged: make it again from the one before and the counted updates."""
    receipts = await room.have(books.journal.receipts.soon, number, attempt)
    counted = await room.have(books.journal.counted.soon, number, attempt)
    if not all(books.spool.whole(receipts[site][1], receipts[site][0]) for site in counted):
        raise StateError(
            f"the checkpoint of round {number} is damaged and so are updates it was made of",
            advice="restore the run's folder from a backup, or begin another run: --new-run with another --seed",
        )
    tally = PlainTally(books.spool)
    for site in counted:
        tally.add(site, receipts[site][1])
    if not counted:
        return before
    return books.half.close(before, tally.arrivals(), books.task(Kind.TRAIN, number, attempt)).state
