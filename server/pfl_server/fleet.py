"""All sites of a run, seen from the coordinator: who is here, what each was asked, what came back.

Two sides meet here: `training` asks (`ask`, `present`), and the transports call what the sites call
(`desk.Desk`). Everything runs on one event loop, so there are no locks; files and arithmetic go to threads.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_common import codec, scores
from pfl_common.errors import Refused
from pfl_common.messages import (
    DECLINES,
    OPENING,
    Assignment,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    RunStatus,
    Scores,
    SiteStatus,
    header_up,
)
from pfl_common.run import ClientId, Description, Header, Kind, Task
from pfl_server.agreement import fits
from pfl_server.desk import Incoming
from pfl_server.envelopes import Letter
from pfl_server.errands import Errand, Place, SiteLost
from pfl_server.spool import upward

if TYPE_CHECKING:
    from pfl_server.books import Books

Prepare = Callable[[Task], Awaitable[Assignment]]

SPARE_BYTES = 256 << 20
"""Disk that uploads never fill: journal and checkpoints are written there too."""


class Fleet:
    """The Desk of one run."""

    def __init__(self, books: Books) -> None:
        self.spec, self._books, self._journal = books.spec, books, books.journal
        self._inbox = books.shelf.folder.parent / "incoming"
        self._inbox.mkdir(exist_ok=True, mode=0o700)
        # A restarted coordinator has seen nobody yet: everyone gets a lease's time to come back.
        self._started = self._now()
        self._places = {site: Place(site, self._started) for site in self._journal.sites()}
        self._over: Over | None = None
        self.refusals: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.status_line: Callable[[], RunStatus] | None = None
        self.on_stop: Callable[[], None] = lambda: None

    # -- what training calls

    def roster(self) -> tuple[ClientId, ...]:
        """All registered sites, by name."""
        return tuple(sorted(self._places))

    def present(self) -> tuple[ClientId, ...]:
        """Sites heard within the time of a lease."""
        limit = self._now() - self.spec.lease_seconds
        return tuple(s for s, place in sorted(self._places.items()) if place.waiting or place.seen >= limit)

    async def ask(self, client: ClientId, task: Task, prepare: Prepare) -> str:
        """Give a site a task; gives the id of its update in the spool, or raises SiteLost."""
        place = self._places[client]
        if task.kind is Kind.TRAIN and (held := await self._held(client, task)):
            return held
        errand = Errand(client, task, prepare, asyncio.get_running_loop().create_future(), place.seen)
        if client in self.present():
            errand.renewed = self._now()
        place.errand = errand
        place.news.set()
        try:
            return await errand.answer
        finally:
            if place.errand is errand:
                place.errand = None

    async def _held(self, client: ClientId, task: Task) -> str:
        """The update a receipt was given for before a restart, if the spool still has it whole."""
        # Not awaited: whoever asks has the errand placed when it lets go for the first time.
        receipt = self._journal.receipt(client, task.round, task.attempt)
        if receipt is None:
            return ""
        digest, name, _ = receipt
        if await asyncio.to_thread(self._books.spool.whole, name, digest):
            return name
        await self._journal.forget.soon(client, task.round, task.attempt)
        return ""

    def give_up(self, client: ClientId, reason: str) -> None:
        """Wait no longer for a site. An update whose receipt is out stays counted: an errand settles once."""
        errand = self._places[client].errand
        if errand is not None:
            self._settle(errand, SiteLost(reason))

    def expired(self, client: ClientId) -> bool:
        """Whether a site has shown no progress for the time of a lease."""
        errand, now = self._places[client].errand, self._now()
        if errand is None or errand.verifying:
            return False
        errand.arriving(now)
        return now - errand.renewed > self.spec.lease_seconds

    def end(self, over: Over) -> None:
        """There will be no more tasks; every site is told so when it asks next."""
        self._over = over
        for place in self._places.values():
            place.news.set()

    # -- what the sites call, through a transport

    async def join(self, site: ClientId, description: Description) -> Joined | None:
        """Register a site, early or late, if its data fit the run."""
        fits(description, self.spec.model, site)
        await self._journal.register.soon(site, description.to_json(), late=site not in self.spec.roster)
        place = self._places.setdefault(site, Place(site, self._now()))
        place.seen = self._now()
        envelopes, init = self._books.envelopes, self._books.init
        return Joined(self.spec.to_json(), init.blob, envelopes.address(init, site), envelopes.card)

    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float
    ) -> Assignment | Over | None:
        """Hand out the site's open errand, the same one again if it asks again, or wait for one."""
        place = self._place(site)
        place.waiting += 1
        try:
            if place.errand is None and self._over is None:
                place.news.clear()
                await asyncio.wait_for(place.news.wait(), wait)
        except TimeoutError:
            return None
        finally:
            place.waiting -= 1
            place.seen = self._now()
        errand = place.errand
        if errand is None:
            return self._over
        # A site that was killed begins again at nothing: its new progress is not measured by what it had.
        errand.handed, errand.renewed, errand.progress = True, self._now(), -1
        assignment = await errand.prepare(replace(errand.task, since=self._since(marks)))
        errand.since, errand.header = assignment.task.since, assignment.header
        return assignment

    def _since(self, marks: tuple[Mark, ...]) -> int:
        """The last committed round a site's vault holds: what an abandoned attempt left does not count."""
        committed = self._journal.committed()
        return max((mark.round for mark in marks if committed.get(mark.round) == mark.attempt), default=0)

    def blob(self, digest: str) -> Path:
        """The file with these bytes."""
        path = self._books.shelf.path(digest)
        self.bytes["down"] += path.stat().st_size
        return path

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """Reserve room for an upload of exactly the size the manifest gives, or repeat its receipt."""
        header = offer.header
        held = await self._journal.receipt.soon(site, header.round, header.attempt)
        if held and _key(header) == offer.key:
            if held[0] != offer.blob.digest:
                raise self._refuse("different", f"another update of {site} for {offer.key} is already here")
            return self._receipt(site, offer)
        errand = self._errand(site, offer.key)
        expected = await self._expected(site, errand, offer)
        letter = self._accept(site, offer)
        path = self._inbox / f"{offer.key}-{site}-{offer.blob.digest[:16]}.part"
        if errand.incoming not in (None, path):
            errand.incoming.unlink(missing_ok=True)
            errand.received = 0
        path.touch(mode=0o600)
        offset = await asyncio.to_thread(letter.genuine, path)
        self._reserve(errand, expected - offset, site)
        errand.offer, errand.incoming = offer, path
        return Incoming(path, offset, expected)

    async def _expected(self, site: ClientId, errand: Errand, offer: Offer) -> int:
        """The size an upload must have; the header says of it what the errand says, or it is not taken."""
        header, task = offer.header, errand.task
        if errand.header is None and errand.uploads:
            # A restarted coordinator has not handed this task out itself.
            errand.header = (await errand.prepare(task)).header
        if errand.header is None:
            raise self._refuse("header", f"{site} offers an update for {task.key}, which asks for none")
        wanted = header_up(self.spec, task, site, state=errand.header.state)
        if header != replace(wanted, groups=header.groups):
            raise self._refuse("header", f"{site} offers {_key(header)}: expected an update for {task.key}")
        expected = self._books.envelopes.size(codec.size_of(upward(self.spec, header), header.groups))
        if offer.blob.size != expected:
            raise self._refuse("size", f"{site} offers {offer.blob.size} bytes: expected {expected}")
        return expected

    def _accept(self, site: ClientId, offer: Offer) -> Letter:
        try:
            return self._books.envelopes.accept(site, offer)
        except Refused as refused:
            raise self._refuse(refused.code, refused.words) from None

    def _reserve(self, errand: Errand, lacking: int, site: ClientId) -> None:
        """Room for all of an upload before its first byte, beside what was promised to the others."""
        promised = sum(p.errand.lacking for p in self._places.values() if p.errand and p.errand is not errand)
        free = shutil.disk_usage(self._inbox).free - promised - SPARE_BYTES
        if lacking > free:
            seen = f"an update of {site} needs {lacking} bytes, {max(0, free)} are free here"
            raise self._refuse("no_room", f"{seen}: the coordinator's operator has to make room")
        errand.reserved = lacking

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """An upload is complete: verify all of it before any of it counts."""
        errand = self._errand(site, key)
        if errand.offer is None or errand.incoming is None:
            raise self._refuse("not_offered", f"{site} sent {key} without offering it")
        try:
            name = await self._verified(errand, errand.offer, errand.incoming)
        except Refused as refused:
            errand.incoming.unlink(missing_ok=True)
            self._settle(errand, SiteLost(f"refused:{refused.code}"))
            raise self._refuse(refused.code, refused.words) from None
        if errand.answer.done():
            raise self._refuse("late", f"{site} was given up while {key} was being verified")
        receipt = self._receipt(site, errand.offer)
        # No await from the look to the promise: whoever has a receipt is counted, and nobody else.
        errand.promised = True
        # Shielded: a site whose line breaks now has its receipt all the same, and its errand must settle.
        await asyncio.shield(asyncio.ensure_future(self._promise(errand, receipt, name)))
        return receipt

    async def _promise(self, errand: Errand, receipt: Receipt, name: str) -> None:
        """Write a receipt down; receipts of one moment are written together."""
        task, signature = errand.task, receipt.signature.hex()
        try:
            await self._journal.receive.soon(
                receipt, task.round, task.attempt, name, since=errand.since, signature=signature
            )
        except BaseException:
            errand.promised = False
            raise
        self.bytes["up"] += errand.offer.blob.size if errand.offer else 0
        self._settle(errand, name)

    async def report(self, site: ClientId, key: str, report: Scores) -> None:
        """Take an evaluation; for tasks that upload nothing it is the answer."""
        errand = self._errand(site, key)
        try:
            scores.check(report)
        except ValueError as error:
            raise self._refuse("scores", f"{site}: {error}") from None
        await self._journal.report.soon(key, site, report, since=errand.since)
        if not errand.uploads:
            self._settle(errand, "")

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        """A site will not do a task, or was drawn to drop out after it."""
        if reason != "dropped" and reason not in DECLINES:
            raise self._refuse("reason", f"{reason!r} is no reason a site can give")
        self._settle(self._errand(site, key), SiteLost(reason))

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        """A site is at work."""
        place = self._place(site)
        place.seen = self._now()
        if key == OPENING and place.errand is not None and not place.errand.handed:
            # A site that reads a large folder has not come for its task yet; that is no silence.
            place.errand.renewed = self._now()
            return True
        if place.errand is None or place.errand.task.key != key:
            return False
        place.errand.renew(progress, self._now())
        return True

    async def leave(self, site: ClientId) -> None:
        """A site goes: what it was asked is lost at once, nobody waits for a lease to end."""
        place = self._place(site)
        place.seen = float("-inf")
        if place.errand:
            self._settle(place.errand, SiteLost("left"))

    def status(self) -> RunStatus:
        """The run at a glance."""
        line = (
            self.status_line() if self.status_line else RunStatus(self.spec.id, self.spec.method, "", 0, 0, 0)
        )
        return replace(line, sites=tuple(self._site_status(p) for _, p in sorted(self._places.items())))

    def stop(self) -> None:
        """End the run in good order."""
        self.on_stop()

    # -- inside

    def _site_status(self, place: Place) -> SiteStatus:
        here = place.site in self.present()
        ago = max(0.0, self._now() - max(place.seen, self._started))
        return SiteStatus(place.site, "here" if here else "away", round(ago, 1), place.doing)

    async def _verified(self, errand: Errand, offer: Offer, path: Path) -> str:
        errand.verifying = True
        try:
            return await asyncio.to_thread(self._books.spool.admit, errand.client, path, offer)
        finally:
            errand.verifying = False

    def _receipt(self, site: ClientId, offer: Offer) -> Receipt:
        return self._books.envelopes.sign(Receipt(self.spec.id, offer.key, site, offer.blob.digest))

    def _settle(self, errand: Errand, outcome: str | SiteLost) -> None:
        if errand.answer.done() or (errand.promised and isinstance(outcome, SiteLost)):
            return
        # At once, and not when `ask` wakes up: a site that asks again must not be given what it has just answered.
        if (place := self._places[errand.client]).errand is errand:
            place.errand = None
        if isinstance(outcome, SiteLost):
            if errand.incoming is not None and not errand.verifying:
                errand.incoming.unlink(missing_ok=True)
            errand.answer.set_exception(outcome)
        else:
            errand.answer.set_result(outcome)

    def _place(self, site: ClientId) -> Place:
        if site not in self._places:
            raise self._refuse("not_joined", f"{site} has not joined run {self.spec.id}: join first")
        return self._places[site]

    def _errand(self, site: ClientId, key: str) -> Errand:
        place = self._place(site)
        place.seen = self._now()
        if place.errand is None or place.errand.task.key != key:
            raise self._refuse("late", f"nothing called {key} is awaited from {site} (any more)")
        return place.errand

    def _refuse(self, code: str, words: str) -> Refused:
        self.refusals[code] += 1
        return Refused(code, words)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _key(header: Header) -> str:
    """The key of the task a header belongs to."""
    return Task(header.kind, header.round, header.round, header.attempt).key
