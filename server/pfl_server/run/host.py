"""The life of a run: gather the sites, freeze the specification or find the run again, train, end.

Without ports: the coordinator process puts it behind gRPC, `pfl simulate` calls it directly.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping

import structlog
from pydantic import JsonValue

from pfl_common.files.recycler import throw_away
from pfl_common.randomness import generators
from pfl_common.spec.messages import Level, Over, RunStatus
from pfl_common.spec.run import ClientId, Description, RunSpec
from pfl_common.tensors import mapped
from pfl_server.decisions.class_names import remark
from pfl_server.envelopes import Envelopes
from pfl_server.run.attempt import Script
from pfl_server.run.freeze import begin
from pfl_server.run.observer import count_on
from pfl_server.run.training import Training
from pfl_server.settings import ServerSettings
from pfl_server.sites.changes import warn_of_other_code
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.gathering import Reception, Rules
from pfl_server.sites.notices import Notices
from pfl_server.store.baselines import Baseline, find_baselines, look_up
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.store.state_folder import Runs
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.event_log import Record

log = structlog.get_logger("pfl.run")

NOTE_SECONDS = 2.0
"""A disk that takes longer holds up no scrape."""
NOTED_SECONDS = 5.0
"""At most what was counted in so many seconds is lost with a coordinator that is killed."""


class RunHost:
    """Holds the coordinator's one run."""

    def __init__(  # noqa: PLR0913  # what a coordinator's run is held with, all but the first two by default
        self,
        settings: ServerSettings,
        envelopes: Envelopes,
        *,
        federation: str = "",
        pinned: RunSpec | None = None,
        script: Script | None = None,
        all_here: bool = False,
    ) -> None:
        self.settings, self._named = settings, look_up(settings.state, settings.baseline)
        self.runs = Runs(settings.state, envelopes, federation=federation)
        throw_away((settings.state / "runs").glob("*/spool/blanks"))
        self.books = self._find_unfinished()
        self.room, self.record = Room(settings.state.absolute()), Record()
        self.notices = Notices(self.room, self.record.events)
        self._resumed, self._failed = self.books is not None, ""
        self._noting: asyncio.Task[Reading] | None = None
        if self.books is not None:
            # Before anybody can look: a counter that is seen to begin again at 0 is taken for one that has grown by all
            # that it then has.
            count_on(self.record.meter, self.books.journal)
            if self.books.journal.status()[0] in ("running", "failed"):
                warn_of_other_code(self.books.spec, self.record.events)
        self._noted = self._told = self.record.meter.read()
        self.reception = Reception(
            settings.method,
            self.notices,
            wanted=_describe_wanted(settings),
            rules=Rules(settings.classes, settings.vocabulary, all_here=all_here),
        )
        self.desk: Reception | Fleet = self.reception
        """Who answers the sites: the fleet as soon as the run is frozen."""
        self._stop_asked = asyncio.Event()
        self.fleet: Fleet | None = None
        self.training: Training | None = None
        self._pinned, self._script = pinned, script
        self._begun = False

    def _find_unfinished(self) -> Books | None:
        """Before any port is open: that the run's settings were others concerns the operator alone."""
        try:
            return self.runs.unfinished(self.settings)
        except BaseException:
            self.runs.close()
            raise

    def status(self) -> RunStatus:
        """What `pfl status` shows."""
        return self.desk.status()

    def stop(self) -> None:
        """End the run in good order after this round."""
        self._stop_asked.set()

    def fail(self, words: str) -> None:
        """The run cannot begin, or cannot go on: every site is told why."""
        self._end("failed", words, level="error")

    def _end(self, status: str, words: str, *, level: Level) -> None:
        self.notices.end(status, words, level=level)
        self.desk.end(Over(status, words))

    async def tell(self) -> Reading:
        """What was counted so far, once it is written down; while the disk takes its time, what was told before."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self.note())
        await asyncio.wait({self._noting}, timeout=NOTE_SECONDS)
        if self._noting.done():
            self._told = self._noting.result()
        return self._told

    async def note(self) -> Reading:
        """Write down what was counted so far, and give it: after a kill this much is known."""
        reading = self.record.meter.read()
        if self.books is not None and reading != self._noted:
            try:
                await self.books.journal.note.soon(reading)
                self._noted, self._failed = reading, ""
            except sqlite3.Error as error:
                # Nothing that is computed depends on it; a full disk is said where it holds somebody up.
                if str(error) != self._failed:
                    log.warning("what is counted is not written down", why=str(error))
                self._failed = str(error)
        return reading

    async def keep_noting(self) -> None:
        """Note now and then, as long as this program runs."""
        while True:
            await asyncio.sleep(NOTED_SECONDS)
            await self.note()

    async def run(self) -> None:
        """From wherever the state folder stands to the run's end."""
        # Before anything is computed in any thread: each takes its number of threads over when it first computes.
        generators.pin_threads(self.settings.threads)
        if self.books is None:
            log.info("waiting for sites", wanted=self.settings.sites)
            sites = await self._gather()
            if sites is None:
                return
            self.books = await self.room.have(self._begin, sites)
            # What has crossed while the sites gathered is of the run, but of none of its attempts.
            self.record.meter.closed = gathered = self.record.meter.read()
            await self.room.have(self.books.journal.note.soon, gathered, closed=True)
        books = self.books
        # The coordinator's own arithmetic is pinned too: another number of threads may sum in another order.
        generators.pin_threads(books.spec.threads)
        _announce(books.spec)
        await self._play(books)

    async def _gather(self) -> Mapping[ClientId, Description] | None:
        """Wait for the sites; None when the operator stopped the run before it had begun."""
        gathering = asyncio.create_task(self.reception.gather(self.settings.sites))
        stopping = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({gathering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if gathering.done():
                return gathering.result()
            self._end("stopped", "the operator stopped the run before it had begun", level="info")
            return None
        finally:
            gathering.cancel()
            stopping.cancel()

    async def _begin(self, sites: Mapping[ClientId, Description]) -> Books:
        if self._pinned is not None:
            return await asyncio.to_thread(self.runs.adopt, self._pinned, sites, self.settings)
        if self._begun:
            # The disk was full in the middle: what has its name already is gone on with.
            found = await asyncio.to_thread(self.runs.unfinished, self.settings)
            if found is not None:
                return found
        self._begun = True
        return await asyncio.to_thread(begin, self.runs, self.settings, sites)

    async def _play(self, books: Books) -> None:
        self.fleet = Fleet(books, self.record, self.notices, resumed=self._resumed)
        self.training = Training(books, self.fleet, script=self._script, room=self.room, record=self.record)
        runs = self.settings.state / "runs"
        baselines = await asyncio.to_thread(find_baselines, runs, books.spec, self._named)
        self.training.watch.baselines = {method: one.accuracy for method, one in baselines.items()}
        self._tell_differences(baselines)
        self.fleet.status_line, self.fleet.took_part = self.training.status, self.training.watch.took_part
        self.fleet.warnings = await self.room.have(asyncio.to_thread, self._compare_classes, books)
        self.desk = self.fleet
        self.reception.open(self.fleet)
        stop = asyncio.create_task(self._pass_on_stop(self.training))
        try:
            # Large results lie beside the checkpoints: the system's temporary folder may be memory.
            with mapped.inside(books.checkpoints.folder):
                await self.training.run()
        finally:
            stop.cancel()

    def _tell_differences(self, baselines: Mapping[str, Baseline]) -> None:
        """A run that was named may be of other settings or data: the gain over it is no merit of the method alone."""
        for method, one in baselines.items():
            if one.differences.hindering:
                words = f"the gain over {method} ({one.run}) is not comparable: {'; '.join(one.differences.hindering)}"
                log.warning(words)
                self.record.events.add(words, "warning")

    def _compare_classes(self, books: Books) -> tuple[str, ...]:
        """What people should know of the sites' class names before the first round; said to operator and sites."""
        sites = {site: json.loads(text)["classes"] for site, text in books.journal.sites().items()}
        found = remark(sites, fixed=bool(self.settings.classes))
        for words in found:
            log.warning("classes", warning=words)
            self.record.events.add(words, "warning")
        return found

    async def _pass_on_stop(self, training: Training) -> None:
        await self._stop_asked.wait()
        training.stop()


def _describe_wanted(settings: ServerSettings) -> dict[str, JsonValue]:
    """What is known of a run before its sites have come, under the names it will have then."""
    return {
        **settings.told(),
        "settings": dict(settings.set),
        "sites": settings.sites,
    }


def _announce(spec: RunSpec) -> None:
    log.info(
        "run",
        id=spec.id,
        backbone=spec.model.backbone,
        shape=spec.model.shape,
        classes=len(spec.model.classes),
        rounds=spec.rounds,
        sites=list(spec.roster),
        settings=spec.settings,
    )
    for what, words in spec.chosen.items():
        log.info("chosen", what=what, words=words)
