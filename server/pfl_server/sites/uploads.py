"""Receives updates: reserves room before the first byte, verifies the whole before any counts, gives a receipt."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pfl_common.app.prompt_work import work_on
from pfl_common.errors import Refused
from pfl_common.spec.messages import Offer, Receipt, header_up
from pfl_common.spec.run import ClientId, Header, Task
from pfl_common.tensors import codec
from pfl_server.decisions.task_events import (
    Answer,
    Discarded,
    Effect,
    Event,
    Lost,
    Offered,
    Recalled,
    ReceiptAsked,
    ReceiptFailed,
    ReceiptWritten,
    Rejected,
    Reserved,
    Stored,
    TooLate,
    Unverified,
    Verified,
    WriteReceipt,
)
from pfl_server.envelopes import Letter
from pfl_server.sites.assignment import Assigned
from pfl_server.sites.open_tasks import OpenTasks
from pfl_server.sites.service import Incoming
from pfl_server.store.spool import upward

if TYPE_CHECKING:
    from pfl_server.store.run_store import Books

SPARE_BYTES = 256 << 20
"""Disk that uploads never fill, beside room for one more model: journal and checkpoints are written there too."""


MOST_OTHERS = 6
"""So often a task's counters may begin anew before a site that offers still other bytes is lost."""


class Intake:
    """The folder of partial uploads, and their way from offer to receipt."""

    def __init__(self, books: Books, tasks: OpenTasks) -> None:
        self._books, self._tasks = books, tasks
        self._spec, self._journal, self._blanks = books.spec, books.journal, books.spool.blanks
        self._inbox = books.shelf.folder.parent / "incoming"
        self._inbox.mkdir(exist_ok=True, mode=0o700)
        self._sweep()
        groups = {entry.group for entry in books.spec.init_manifest if entry.group}
        self._spare = SPARE_BYTES + codec.size_of(books.spec.init_manifest, groups)

    def _sweep(self) -> None:
        """What lies here from attempts that are over, a coordinator that was killed could not take away."""
        open_ones = [row for row in self._journal.rounds() if row["status"] == "open"]
        under_way = tuple(f"{row['round']:06d}-{row['attempt']}-" for row in open_ones)
        for part in self._inbox.glob("*.part"):
            if not part.name.startswith(under_way):
                part.unlink()

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """Reserve room for an upload of exactly the size the manifest gives, or repeat its receipt."""
        if not self._is_awaited(site, offer.key) and await self._has_receipt(site, offer):
            return self._receipt(site, offer)
        assigned = self._tasks.awaited(site, offer.key)
        if assigned.state.is_verified(offer):
            return await self._promise(assigned, ReceiptAsked(), offer)
        expected, letter = await self._accepted(site, assigned, offer)
        path = self._inbox / f"{offer.key}-{site}-{offer.blob.digest[:16]}.part"
        under_way = assigned.state.upload
        if under_way is not None and under_way.path != path:
            self._discard(assigned)
        held = _size_of(path)
        offset = await work_on(held, _verify_more, letter, path, assigned.genuine) if held else 0
        assigned.genuine = path, offset
        lacking = await self._make_room(assigned, path, expected, held=held)
        now, late = self._tasks.now(), "room was made for its update"
        self._tell(assigned, Offered(offer, path, offset, expected, lacking, now), late=late)
        assigned.letter = letter
        return self._watch(assigned, offer, letter)

    def _watch(self, assigned: Assigned, offer: Offer, letter: Letter) -> Incoming:
        """The upload that begins or goes on, checked while it comes if that is from its first byte on."""
        incoming = cast(Incoming, assigned.incoming)
        assigned.watched = None
        if incoming.offset == 0:
            assigned.watched = self._books.spool.watch(offer, letter)
        if assigned.watched is not None:
            incoming.tap = assigned.watched.take
        return incoming

    def _is_awaited(self, site: ClientId, key: str) -> bool:
        """Whether a site's open task has this key and no receipt is on its way: then the journal has none either."""
        assigned = self._tasks.find(site)
        return assigned is not None and assigned.task.key == key and assigned.state.can_be_lost

    async def _has_receipt(self, site: ClientId, offer: Offer) -> bool:
        """Whether a receipt was given for this very update; one for another is the only one there will be."""
        header = offer.header
        held = await self._journal.receipt.soon(site, header.round, header.attempt)
        if not held or _key(header) != offer.key:
            return False
        if held[0] != offer.blob.digest:
            raise self._tasks.refuse("different", f"another update of {site} for {offer.key} is already here")
        return True

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """An upload is complete: verify all of it before any of it counts."""
        assigned = self._tasks.awaited(site, key)
        offer, upload = assigned.state.offer, assigned.state.upload
        if offer is None or upload is None:
            raise self._tasks.refuse("not_offered", f"{site} sent {key} without offering it")
        self._tell(assigned, Stored(self._tasks.now()), late=f"{key} came in")
        verified = await self._verified(assigned, offer, upload.path)
        return await self._promise(assigned, verified, offer)

    async def _promise(self, assigned: Assigned, event: Verified | ReceiptAsked, offer: Offer) -> Receipt:
        """Give the receipt of a verified update: a site that has one is counted, and no other."""
        receipt = self._receipt(assigned.client, offer)
        # No await from here until it is being written.
        if WriteReceipt() in self._tell(assigned, event, late=f"{offer.key} was verified"):
            assigned.receipt = asyncio.ensure_future(self._write_down(assigned, offer, receipt))
        # Shielded: a site whose line breaks now has its receipt all the same, and its task must settle.
        await asyncio.shield(assigned.receipt)
        return receipt

    async def _write_down(self, assigned: Assigned, offer: Offer, receipt: Receipt) -> None:
        """Receipts of one moment are written together."""
        task, spooled, signature = assigned.task, assigned.state.spooled, receipt.signature.hex()
        try:
            await self._journal.receive.soon(receipt, task.round, task.attempt, spooled, signature=signature)
        except BaseException:
            self._tasks.tell(assigned, ReceiptFailed(self._tasks.now()))
            raise
        letter, effects = assigned.letter, self._tasks.tell(assigned, ReceiptWritten(self._tasks.now()))
        # No await from the answer to here: who is answered reads the update next.
        if letter is not None and Answer(spooled) in effects:
            self._books.spool.hold(spooled, offer, letter)

    def _discard(self, assigned: Assigned) -> None:
        """A site whose outbox is torn trains again and offers other bytes; one that does so again and again is lost."""
        self._tasks.tell(assigned, Discarded())
        if assigned.state.lease.fresh_starts > MOST_OTHERS:
            self._tasks.tell(assigned, Lost("refused:different"))
            raise self._tasks.refuse(
                "different", f"{assigned.client} has offered {assigned.task.key} with other bytes too often"
            )

    def _tell(self, assigned: Assigned, event: Event, *, late: str) -> list[Effect]:
        """Go on with an upload, unless its task was settled meanwhile."""
        effects = self._tasks.tell(assigned, event)
        if TooLate() in effects:
            raise self._tasks.refuse("late", f"{assigned.client} was given up while {late}")
        return effects

    async def _accepted(self, site: ClientId, assigned: Assigned, offer: Offer) -> tuple[int, Letter]:
        """The size an upload must have and who vouches for it. What is wrong with it now stays wrong: the task
        is over, or the site would offer the same again and again.
        """
        if assigned.state.header is None and assigned.state.uploads:
            # A restarted coordinator has not handed this task out itself.
            self._tasks.tell(assigned, Recalled((await assigned.prepare(assigned.task)).header))
        try:
            expected = self._measure(site, assigned, offer)
            return expected, self._books.envelopes.accept(site, offer, assigned.letter_of(offer))
        except Refused as refused:
            self._tasks.tell(assigned, Lost(f"refused:{refused.code}"))
            raise self._tasks.refuse(refused.code, refused.words) from None

    def _measure(self, site: ClientId, assigned: Assigned, offer: Offer) -> int:
        """The header says of an upload what its task says, and the manifest its size, or it is not taken."""
        header, task, down = offer.header, assigned.task, assigned.state.header
        if down is None or not assigned.state.uploads:
            raise Refused("header", f"{site} offers an update for {task.key}, which asks for none")
        wanted = header_up(self._spec, task, site, state=down.state)
        if header != wanted and header != replace(wanted, groups=header.groups):
            raise Refused("header", f"{site} offers {_key(header)}: expected an update for {task.key}")
        expected = self._books.envelopes.size(codec.size_of(upward(self._spec, header), header.groups))
        if offer.blob.size != expected:
            raise Refused("size", f"{site} offers {offer.blob.size} bytes: expected {expected}")
        return expected

    async def _make_room(self, assigned: Assigned, path: Path, expected: int, *, held: int) -> int:
        """Promise an upload the room it lacks beside what it holds, and begin its file: over one that is not needed any
        more, if there is such a one. Gives what it lacks then.
        """
        await self._reserve(assigned, max(0, expected - held))
        if not held:
            # In a thread if it may be long.
            fits = self._blanks.has_one_for(expected)
            if fits and await work_on(expected, self._blanks.lay, path, expected):
                held = _size_of(path)
            else:
                path.touch(mode=0o600)
        # The bytes of a file that is written over are on the disk already.
        return max(0, expected - held)

    async def _reserve(self, assigned: Assigned, lacking: int) -> None:
        """Room for all of an upload before its first byte, beside what was promised to the others."""
        spare, free = self._spare, self._free(assigned)
        if lacking + spare > free:
            await asyncio.to_thread(self._blanks.clear)
            free = self._free(assigned)
        # No await from the look to the promise.
        if lacking + spare > free:
            needed = f"{(lacking + spare) / 1e6:.0f} MB (of them {spare / 1e6:.0f} MB to spare)"
            raise self._tasks.refuse(
                "no_room",
                f"an update of {assigned.client} needs {needed}, "
                f"{free / 1e6:.0f} MB are free on the coordinator's disk",
            )
        self._tasks.tell(assigned, Reserved(lacking))

    def _free(self, assigned: Assigned) -> int:
        return shutil.disk_usage(self._inbox).free - self._tasks.promised(assigned)

    async def _verified(self, assigned: Assigned, offer: Offer, path: Path) -> Verified:
        admit, letter = self._books.spool.admit, assigned.letter_of(offer)
        watched, assigned.watched = assigned.watched, None
        try:
            size = offer.blob.size
            return Verified(await work_on(size, admit, assigned.client, path, offer, letter, watched))
        except Refused as refused:
            self._tasks.tell(assigned, Rejected(refused.code))
            raise self._tasks.refuse(refused.code, refused.words) from None
        except BaseException:
            self._tasks.tell(assigned, Unverified(self._tasks.now()))
            raise

    def _receipt(self, site: ClientId, offer: Offer) -> Receipt:
        return self._books.envelopes.sign(Receipt(self._spec.id, offer.key, site, offer.blob.digest))


def _key(header: Header) -> str:
    """The key of the task a header belongs to."""
    return Task(header.kind, header.round, header.round, header.attempt).key


def _verify_more(letter: Letter, path: Path, before: tuple[Path, int] | None) -> int:
    """How far a partial file is genuine. What was verified is not opened again: no stream writes below it."""
    same, known = before or (None, 0)
    return letter.genuine(path, known if same == path and _size_of(path) >= known else 0)


def _size_of(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
