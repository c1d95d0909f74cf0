"""All sites of a run as the coordinator sees them: who is present, what each was asked, what came back.

Two sides meet here: `training` asks (`ask`, `present`), and the transports call what the sites call
(`service.Desk`). Everything runs on one event loop, so there are no locks; files and arithmetic go to threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, cast

import structlog

from pfl_common import evaluation
from pfl_common.errors import Refused
from pfl_common.spec.messages import (
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
    shorten,
)
from pfl_common.spec.run import ClientId, Description, Kind, Task
from pfl_server.decisions.model_choice import fits
from pfl_server.sites import remembered_rounds
from pfl_server.sites.assignment import Errand, Place, SiteLost
from pfl_server.sites.changes import DataWatch
from pfl_server.sites.service import Incoming
from pfl_server.sites.uploads import Intake
from pfl_server.telemetry.event_log import Record

if TYPE_CHECKING:
    from pfl_server.store.run_store import Books

log = structlog.get_logger("pfl.fleet")

Prepare = Callable[[Task], Awaitable[Assignment]]

LONGEST_WORDS = 200
FORGOTTEN_SECONDS = 7 * 24 * 3600.0
"""Nobody need see to the certificate of a site that was silent for so long."""


class Fleet:
    """The Desk of one run."""

    def __init__(self, books: Books, record: Record | None = None, *, resumed: bool = False) -> None:
        self._record = record or Record()
        self.spec, self._books, self._journal = books.spec, books, books.journal
        self._data = DataWatch(books.spec, self._record.events)
        # A restarted coordinator has seen nobody yet: everyone gets a lease's time to come back, and is not said to
        # be here before.
        self._started = self.now()
        self._places = remembered_rounds.recall_places(
            self._journal.sites(), self._started, heard=not resumed
        )
        for site, at in self._journal.goodbyes().items():
            # But not these: they left on purpose, and nobody waits for them.
            place = self._places[site]
            place.seen, place.left_at = float("-inf"), self._started - max(0.0, time() - at)
        for row in self._journal.rounds():
            if row["status"] == "committed":
                self._remember(row)
        self._over: Over | None = None
        self.refusals: Counter[str] = Counter()
        self._intake = Intake(books, self, meter=self._record.meter)
        self.status_line: Callable[[], RunStatus] | None = None
        self.took_part: Counter[ClientId] = Counter()
        """In how many rounds each site was counted, as training sees it."""
        self.warnings: tuple[str, ...] = ()
        """What is odd about the sites' classes."""
        self.on_stop: Callable[[], None] = lambda: None

    # -- what training calls

    def roster(self) -> tuple[ClientId, ...]:
        """All registered sites, by name."""
        return tuple(sorted(self._places))

    def present(self) -> tuple[ClientId, ...]:
        """Sites heard within the time of a lease."""
        limit = self.now() - self.spec.lease_seconds
        return tuple(s for s, place in sorted(self._places.items()) if place.waiting or place.seen >= limit)

    async def ask(self, client: ClientId, task: Task, prepare: Prepare) -> str:
        """Give a site a task; gives the id of its update in the spool, or raises SiteLost."""
        place = self._places[client]
        if task.kind is Kind.TRAIN and (held := await self._held(client, task)):
            return held
        errand = Errand(client, task, prepare, asyncio.get_running_loop().create_future(), place.seen)
        if client in self.present():
            errand.renewed = self.now()
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
        if errand is not None and not errand.promised:
            log.warning("no longer waited for", site=client, task=errand.task.key, reason=reason)
            self._record.events.add(f"{client} is no longer waited for ({errand.stage}, {reason})", "warning")
            self.settle(errand, SiteLost(reason))

    def expired(self, client: ClientId) -> bool:
        """Whether a site has shown no progress for the time of a lease."""
        errand, now = self._places[client].errand, self.now()
        if errand is None or errand.verifying or errand.preparing:
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
        self._welcome(site, description)
        self._data.look(site, description)
        envelopes, init = self._books.envelopes, self._books.init
        own = envelopes.address(init, site)
        return Joined(self.spec.to_json(), init.blob, own, envelopes.card, self.warnings)

    def _welcome(self, site: ClientId, description: Description) -> None:
        known = self._places.get(site)
        if known is None or known.has_left:
            self._record.events.add(f"{site} joined" if known is None else f"{site} came back")
        place = self._places.setdefault(site, Place(site, self.now()))
        place.hear(self.now())
        place.warnings = shorten(description.warnings)

    async def next_task(
        self, site: ClientId, marks: tuple[Mark, ...], *, wait: float
    ) -> Assignment | Over | None:
        """Hand out the site's open errand, the same one again if it asks again, or wait for one."""
        place = self._place(site)
        with self._on_the_line(place):
            try:
                if place.errand is None and self._over is None:
                    place.news.clear()
                    await asyncio.wait_for(place.news.wait(), wait)
            except TimeoutError:
                return None
        errand = place.errand
        if errand is None:
            return self._over_for(site)
        # A site that was killed begins again at nothing: its new progress is not measured by what it had.
        errand.handed, errand.renewed, errand.progress = True, self.now(), -1
        committed = self._journal.committed()
        since = remembered_rounds.newest_committed(marks, committed)
        remembered_rounds.compare(place, marks, committed, since=since)
        assignment = await errand.make(since, self.now)
        errand.header, errand.digest, errand.turned = assignment.header, assignment.blob.digest, self.now()
        # Not waited for: it is written before the receipt that may follow, and a replay alone wants it.
        writing = self._journal.hand_out.soon(errand.task.key, site, assignment.task.since)
        writing.add_done_callback(remembered_rounds.look_at_handing)
        return assignment

    @contextmanager
    def _on_the_line(self, place: Place) -> Iterator[None]:
        """While a call of a site waits here the site is here; when its line closes meanwhile, it is away at once."""
        self._hear(place)
        call, place.waiting = place.calls, place.waiting + 1
        try:
            yield
            self._hear(place)
        except asyncio.CancelledError:
            place.hang_up(call)
            raise
        finally:
            place.waiting -= 1

    async def linger(self, site: ClientId, key: str, *, seconds: float) -> None:
        """Hold a site's call while it is at work on a task, and while that is wanted."""
        errand = (place := self._place(site)).errand
        wanted = errand is not None and errand.task.key == key
        if wanted or key == OPENING:
            with self._on_the_line(place):
                ended = {errand.answer} if errand and wanted else {asyncio.sleep(seconds)}
                await asyncio.wait(map(asyncio.ensure_future, ended), timeout=seconds)

    def _over_for(self, site: ClientId) -> Over | None:
        """The end, with how often this site was in it."""
        over = self._over
        return replace(over, counted=self.took_part[site]) if over and self.took_part else over

    def blob(self, digest: str) -> Path:
        """The file with these bytes."""
        return self._books.shelf.path(digest)

    def fetched(self, site: ClientId, digest: str) -> None:
        """A site has been sent the last of these bytes."""
        place = self._places.get(site)
        if place is not None and (errand := place.errand) is not None and errand.digest == digest:
            # Only the first time: what it fetches again while it works is no part of its work.
            errand.digest = ""
            self._intake.turn(errand, "download")

    async def offer(self, site: ClientId, offer: Offer) -> Incoming | Receipt:
        """Reserve room for an upload, or repeat the receipt of one that is already here."""
        return await self._intake.offer(site, offer)

    async def stored(self, site: ClientId, key: str) -> Receipt:
        """An upload is complete: verify all of it before any of it counts."""
        return await self._intake.stored(site, key)

    async def report(self, site: ClientId, key: str, report: Scores) -> None:
        """Take an evaluation; for tasks that upload nothing it is the answer."""
        errand = self.errand(site, key)
        try:
            evaluation.check(report)
        except ValueError as error:
            # It stays wrong: a site whose errand were not over would hand in the same again and again.
            code = "scores" if evaluation.is_finite(report) else "not_finite"
            self.settle(errand, SiteLost(f"refused:{code}"))
            raise self.refuse(code, f"{site}: {error}") from None
        await self._journal.report.soon(key, site, report)
        if not errand.uploads:
            self.settle(errand, "")

    async def decline(self, site: ClientId, key: str, reason: str, words: str) -> None:
        """A site will not do a task, or was drawn to drop out after it."""
        if reason != "dropped" and reason not in DECLINES:
            raise self.refuse("reason", f"{reason!r} is no reason a site can give")
        errand = self.errand(site, key)
        self._places[site].trouble = ""
        if reason != "dropped":
            (said,) = shorten([words[:LONGEST_WORDS]])
            self._places[site].trouble = f"declined {key}, {reason}: {said}"
            log.warning("a site declined", site=site, task=key, reason=reason, words=said)
            self._record.events.add(f"{site} declined {key} ({reason}): {said}", "warning")
        if errand.task.kind is Kind.FINISH and reason == "disk_full":
            # Nobody is given up at the end: the site asks for the same again when it has room.
            return
        self.settle(errand, SiteLost(reason))

    def heartbeat(self, site: ClientId, key: str, progress: int) -> bool:
        """A site is at work."""
        place = self._place(site)
        self._hear(place)
        if key == OPENING and place.errand is not None and not place.errand.handed:
            # A site that reads a large folder has not come for its task yet; that is no silence.
            place.errand.renewed = self.now()
            return True
        if place.errand is None or place.errand.task.key != key:
            return False
        place.errand.renew(progress, self.now())
        return True

    def pause(self, site: ClientId) -> None:
        """A site is stopped and will come back: as if its line had closed. What it was asked waits for it."""
        place = self._place(site)
        place.hang_up(place.calls)

    async def leave(self, site: ClientId) -> None:
        """A site goes: what it was asked is lost at once, nobody waits for a lease to end."""
        place = self._place(site)
        place.seen, place.left_at = float("-inf"), self.now()
        self._record.events.left(site)
        # Not waited for: whoever goes has no time, and a goodbye that is lost is a silence.
        self._journal.leave.soon(site, time()).add_done_callback(remembered_rounds.look_at_goodbye)
        if place.errand:
            self.settle(place.errand, SiteLost("left"))

    def heard(self) -> tuple[int, int, int]:
        """How many of the registered sites are here, how many are away, and how many have said goodbye."""
        here = self._here()
        left = sum(place.has_left for site, place in self._places.items() if site not in here)
        return len(here), len(self._places) - len(here) - left, left

    def members(self) -> tuple[ClientId, ...]:
        """Sites that are likely to come again: they have not said goodbye and were heard within days."""
        limit = self.now() - FORGOTTEN_SECONDS
        return tuple(site for site, place in sorted(self._places.items()) if place.seen >= limit)

    def status(self) -> RunStatus:
        """The run at a glance."""
        line = (
            self.status_line() if self.status_line else RunStatus(self.spec.id, self.spec.method, "", 0, 0, 0)
        )
        present = self._here()
        sites = (self._site_status(p, here=name in present) for name, p in sorted(self._places.items()))
        return replace(line, sites=tuple(sites), warnings=self.warnings)

    def stop(self) -> None:
        """End the run in good order."""
        self.on_stop()

    # -- what the intake of uploads asks

    def errand(self, site: ClientId, key: str) -> Errand:
        """What is awaited from a site under this key; everything else comes too late."""
        place = self._place(site)
        self._hear(place)
        if place.errand is None or place.errand.task.key != key:
            raise self.refuse("late", f"nothing called {key} is awaited from {site} (any more)")
        return place.errand

    def promised(self, but: Errand) -> int:
        """Bytes of disk that were promised to the uploads of all errands but one."""
        errands = (place.errand for place in self._places.values())
        return sum(errand.lacking for errand in errands if errand is not None and errand is not but)

    def settle(self, errand: Errand, outcome: str | SiteLost) -> None:
        """An errand is over, once and for all; whoever has a receipt cannot be lost any more."""
        if errand.answer.done() or (errand.promised and isinstance(outcome, SiteLost)):
            return
        # At once, and not when `ask` wakes up: a site that asks again must not be given what it has just answered.
        if (place := self._places[errand.client]).errand is errand:
            place.errand = None
        if isinstance(outcome, SiteLost):
            if errand.incoming is not None and not errand.verifying:
                errand.incoming.path.unlink(missing_ok=True)
            outcome.stage = "drawn" if outcome.reason == "dropped" else errand.stage
            errand.answer.set_exception(outcome)
        else:
            place.trouble = ""
            if errand.uploads:
                place.given = (Mark(errand.task.round, errand.task.attempt), *place.given[:1])
            errand.answer.set_result(outcome)

    def refuse(self, code: str, words: str) -> Refused:
        """Count a refusal."""
        self.refusals[code] += 1
        return Refused(code, words)

    def bear_with(self, site: ClientId) -> None:
        """A site was sent away for want of room here: it is not the one that is silent."""
        place = self._places.get(site)
        if place is not None and place.errand is not None:
            place.errand.renewed = self.now()

    # -- inside

    def _remember(self, row: dict[str, object]) -> None:
        """Who was counted in a committed round."""
        counted = cast(list[ClientId], row["counted"])
        mark = Mark(cast(int, row["round"]), cast(int, row["attempt"]))
        for place in (self._places[site] for site in counted if site in self._places):
            place.given = (mark, *place.given[:1])

    def _hear(self, place: Place) -> None:
        """A goodbye that came late, of a site that was started again meanwhile, must not outlive a restart either."""
        if place.has_left:
            self._journal.stay.soon(place.site).add_done_callback(remembered_rounds.look_at_goodbye)
        place.hear(self.now())

    def _here(self) -> set[ClientId]:
        """Who is said to be here. After a restart others are waited for too: they have a lease's time to be heard."""
        return {site for site in self.present() if self._places[site].on_the_line}

    def _site_status(self, place: Place, *, here: bool) -> SiteStatus:
        taken = self.took_part[place.site]
        return place.status(self.now(), started=self._started, here=here, counted=taken)

    def _place(self, site: ClientId) -> Place:
        if site not in self._places:
            raise self.refuse("not_joined", f"{site} has not joined run {self.spec.id}: join first")
        return self._places[site]

    def now(self) -> float:
        """The clock that leases are measured by."""
        return asyncio.get_running_loop().time()
