"""Receives updates: reserves room before the first byte, verifies the whole before any counts, gives a receipt."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pfl_common.errors import Refused
from pfl_common.spec.messages import Offer, Receipt, header_up
from pfl_common.spec.run import ClientId, Header, Task
from pfl_common.tensors import codec
from pfl_server.envelopes import Letter
from pfl_server.sites.assignment import Errand, SiteLost
from pfl_server.sites.service import Incoming
from pfl_server.store.spool import upward
from pfl_server.telemetry.counters import Meter, Phase

if TYPE_CHECKING:
    from pfl_server.store.run_store import Books

SPARE_BYTES = 256 << 20
"""Disk that uploads never fill, beside room for one more model: journal and checkpoints are written there too."""


class Front(Protocol):
    """The fleet, as far as uploads need it."""

    def errand(self, site: ClientId, key: str) -> Errand:
        """What is awaited from a site under this key."""

    def promised(self, but: Errand) -> int:
        """Bytes of disk that were promised to the uploads of all errands but one."""

    def settle(self, errand: Errand, outcome: str | SiteLost) -> None:
        """An errand is over."""

    def refuse(self, code: str, words: str) -> Refused:
        """Count a refusal."""

    def now(self) -> float:
        """The clock that leases are measured by."""


class Intake:
    """The folder of partial uploads, and their way from offer to receipt."""

    def __init__(self, books: Books, front: Front, *, meter: Meter) -> None:
        self._books, self._front = books, front
        self._spec, self._journal, self._blanks = books.spec, books.journal, books.spool.blanks
        self._inbox = books.shelf.folder.parent / "incoming"
        self._inbox.mkdir(exist_ok=True, mode=0o700)
        self._sweep()
        self._meter = meter
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
        header = offer.header
        held = await self._journal.receipt.soon(site, header.round, header.attempt)
        if held and _key(header) == offer.key:
            if held[0] != offer.blob.digest:
                raise self._front.refuse(
                    "different", f"another update of {site} for {offer.key} is already here"
                )
            return self._receipt(site, offer)
        errand = self._front.errand(site, offer.key)
        if errand.spooled and errand.offer == offer:
            return await self._promise(errand, offer)
        expected, letter = await self._accepted(site, errand, offer)
        path = self._inbox / f"{offer.key}-{site}-{offer.blob.digest[:16]}.part"
        before = errand.incoming
        if before is not None and before.path != path:
            before.path.unlink(missing_ok=True)
            errand.incoming, errand.received = None, 0
        offset = await asyncio.to_thread(letter.genuine, path) if path.exists() else 0
        await self._make_room(errand, path, expected)
        if errand.offer is None:
            self.turn(errand, "work")
        errand.offer, errand.incoming = offer, Incoming(path, offset, expected)
        return errand.incoming

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """An upload is complete: verify all of it before any of it counts."""
        errand = self._front.errand(site, key)
        offer, incoming = errand.offer, errand.incoming
        if offer is None or incoming is None:
            raise self._front.refuse("not_offered", f"{site} sent {key} without offering it")
        self.turn(errand, "upload")
        try:
            errand.spooled = await self._verified(errand, offer, incoming.path)
        except Refused as refused:
            incoming.path.unlink(missing_ok=True)
            raise self._turn_away(errand, refused) from None
        receipt = await self._promise(errand, offer)
        self.turn(errand, "verify")
        return receipt

    def turn(self, errand: Errand, done: Phase) -> None:
        """A site is through with a phase of its training; what it only measures nobody waits for."""
        seconds = errand.turn(self._front.now())
        if seconds is not None and errand.uploads:
            self._meter.took(done, seconds)

    async def _promise(self, errand: Errand, offer: Offer) -> Receipt:
        """Give the receipt of a verified update: whoever has one is counted, and nobody else."""
        if errand.answer.done():
            raise self._front.refuse("late", f"{errand.client} was given up while {offer.key} was verified")
        # No await from the look to the promise.
        errand.promised = True
        receipt = self._receipt(errand.client, offer)
        # Shielded: a site whose line breaks now has its receipt all the same, and its errand must settle.
        await asyncio.shield(asyncio.ensure_future(self._write_down(errand, receipt)))
        return receipt

    async def _write_down(self, errand: Errand, receipt: Receipt) -> None:
        """Receipts of one moment are written together."""
        task, signature = errand.task, receipt.signature.hex()
        try:
            await self._journal.receive.soon(
                receipt, task.round, task.attempt, errand.spooled, signature=signature
            )
        except BaseException:
            errand.promised = False
            raise
        self._front.settle(errand, errand.spooled)

    async def _accepted(self, site: ClientId, errand: Errand, offer: Offer) -> tuple[int, Letter]:
        """The size an upload must have and who vouches for it. What is wrong with it now stays wrong: the errand
        is over, or the site would offer the same again and again.
        """
        if errand.header is None and errand.uploads:
            # A restarted coordinator has not handed this task out itself.
            errand.header = (await errand.prepare(errand.task)).header
        try:
            expected = self._measure(site, errand, offer)
            return expected, self._books.envelopes.accept(site, offer)
        except Refused as refused:
            raise self._turn_away(errand, refused) from None

    def _measure(self, site: ClientId, errand: Errand, offer: Offer) -> int:
        """The header says of an upload what the errand says, and the manifest its size, or it is not taken."""
        header, task = offer.header, errand.task
        if errand.header is None:
            raise Refused("header", f"{site} offers an update for {task.key}, which asks for none")
        wanted = header_up(self._spec, task, site, state=errand.header.state)
        if header != replace(wanted, groups=header.groups):
            raise Refused("header", f"{site} offers {_key(header)}: expected an update for {task.key}")
        expected = self._books.envelopes.size(codec.size_of(upward(self._spec, header), header.groups))
        if offer.blob.size != expected:
            raise Refused("size", f"{site} offers {offer.blob.size} bytes: expected {expected}")
        return expected

    def _turn_away(self, errand: Errand, refused: Refused) -> Refused:
        self._front.settle(errand, SiteLost(f"refused:{refused.code}"))
        return self._front.refuse(refused.code, refused.words)

    async def _make_room(self, errand: Errand, path: Path, expected: int) -> None:
        """Promise an upload the room it lacks, and begin its file: over one that is not needed any more, if there is
        such a one.
        """
        await self._reserve(errand, max(0, expected - _size_of(path)))
        if not path.exists():
            # In a thread if it may be long; a small upload, whose blank there never is, need not wait for one.
            fits = self._blanks.has_one_for(expected)
            if not (fits and await asyncio.to_thread(self._blanks.lay, path, expected)):
                path.touch(mode=0o600)
        if errand.answer.done():
            path.unlink(missing_ok=True)
            raise self._front.refuse(
                "late", f"{errand.client} was given up while room was made for its update"
            )
        # The bytes of a file that is written over are on the disk already.
        errand.reserved = max(0, expected - _size_of(path))

    async def _reserve(self, errand: Errand, lacking: int) -> None:
        """Room for all of an upload before its first byte, beside what was promised to the others."""
        if lacking + self._spare > self._free(errand):
            await asyncio.to_thread(self._blanks.clear)
        # No await from the look to the promise.
        spare, free = self._spare, self._free(errand)
        if lacking + spare > free:
            needed = f"{(lacking + spare) / 1e6:.0f} MB (of them {spare / 1e6:.0f} MB to spare)"
            raise self._front.refuse(
                "no_room",
                f"an update of {errand.client} needs {needed}, "
                f"{free / 1e6:.0f} MB are free on the coordinator's disk",
            )
        errand.reserved = lacking

    def _free(self, errand: Errand) -> int:
        return shutil.disk_usage(self._inbox).free - self._front.promised(errand)

    async def _verified(self, errand: Errand, offer: Offer, path: Path) -> str:
        errand.verifying = True
        try:
            return await asyncio.to_thread(self._books.spool.admit, errand.client, path, offer)
        finally:
            errand.verifying = False

    def _receipt(self, site: ClientId, offer: Offer) -> Receipt:
        return self._books.envelopes.sign(Receipt(self._spec.id, offer.key, site, offer.blob.digest))


def _key(header: Header) -> str:
    """The key of the task a header belongs to."""
    return Task(header.kind, header.round, header.round, header.attempt).key


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
