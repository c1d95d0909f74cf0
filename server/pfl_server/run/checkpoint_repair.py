"""Finds the shared state that a run goes on from; a damaged checkpoint is made again from the updates counted."""

from __future__ import annotations

from collections.abc import Mapping

from pfl_common.errors import StateError
from pfl_common.spec.run import Kind
from pfl_server.store.disk_wait import Room
from pfl_server.store.round_base import Base, find_sent
from pfl_server.store.run_store import Books
from pfl_server.store.tallies import open_tally


async def load_newest(books: Books, room: Room) -> Base:
    """The state that the round after the last committed one begins from; the first one before any was."""
    last = max(books.journal.committed(), default=0)
    backs: Mapping[int, int] = await room.have(books.journal.fallbacks.soon)
    return await load_after(books, room, backs.get(last + 1, last))


async def load_after(books: Books, room: Room, after: int) -> Base:
    """The state after a committed round. Those that the run fell back from are let go of first."""
    committed = books.journal.committed()
    backs: Mapping[int, int] = await room.have(books.journal.fallbacks.soon)
    for number, back_to in backs.items():
        for dropped in range(back_to + 1, number):
            books.checkpoints.drop(dropped)
    found = books.checkpoints.load(upto=after)
    base = books.read(found[0]) if found else books.beginning
    missing, at = list[int](), after
    while at > base.after:
        missing.append(at)
        at = backs.get(at, at - 1)
    for lost in reversed(missing):
        base = await _remake(books, room, lost, committed[lost], before=base)
    return base


async def _remake(books: Books, room: Room, number: int, attempt: int, *, before: Base) -> Base:
    """A checkpoint was damaged: make it again from the one before and the counted updates."""
    receipts = await room.have(books.journal.receipts.soon, number, attempt)
    counted = await room.have(books.journal.counted.soon, number, attempt)
    if not all(books.spool.whole(receipts[site][1], receipts[site][0]) for site in counted):
        raise StateError(
            f"the checkpoint of round {number} is damaged and so are updates it was made of",
            advice="restore the run's folder from a backup, or begin another run: --new-run with another --seed",
        )
    task = books.task(Kind.TRAIN, number, attempt)
    sent = find_sent(books.spec, task, before)
    if not counted:
        return Base(number, before.state, sent.values)
    books.compare_with(before.state)
    tally = open_tally(books, before.state)
    for site in counted:
        tally.add(site, receipts[site][1])
    return Base(number, books.half.close(before.state, tally.arrivals(), task).state, sent.values)
