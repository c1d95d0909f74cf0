"""The life of a run: gather the sites, freeze the specification or find the run again, train, end.

Without ports: the coordinator process puts it behind gRPC, `pfl simulate` calls it directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from pydantic import JsonValue

from pfl_common.files.recycler import throw_away
from pfl_common.randomness import generators
from pfl_common.spec.messages import Level, Over, RunStatus
from pfl_common.spec.run import ClientId, Description, RunSpec
from pfl_common.spec.sample_form import read_form
from pfl_common.tensors import mapped
from pfl_server.decisions import channel_scaling
from pfl_server.envelopes import Envelopes
from pfl_server.run.attempt import Script
from pfl_server.run.counter_journal import CounterJournal
from pfl_server.run.first_weights import check_weights
from pfl_server.run.specification import Beginning
from pfl_server.run.start_warnings import warn_of_baselines, warn_of_classes
from pfl_server.run.training import Training
from pfl_server.settings import ServerSettings
from pfl_server.sites.changes_since_begin import warn_of_other_code
from pfl_server.sites.fleet import Fleet
from pfl_server.sites.gathering import Reception, Rules
from pfl_server.sites.notices import Notices
from pfl_server.store.baselines import find_baselines, look_up
from pfl_server.store.begin_from import Source
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.store.state_folder import Runs
from pfl_server.telemetry.disclosure import Disclosure
from pfl_server.telemetry.event_log import Record

log = structlog.get_logger("pfl.run")


@dataclass(frozen=True)
class Played:
    """A run whose specification is frozen: the fleet of its sites, and the training of its rounds."""

    fleet: Fleet
    training: Training


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
        source = self._find_source(pinned)
        if self.books is None and source is None:
            self._check_weights()
        disclosure = Disclosure(settings.fewest_reporters, by_site=settings.site_metrics)
        self.record = Record(disclosure=disclosure)
        self.notices = Notices(Room(settings.state.absolute()), self.record.events)
        self.counter_journal = CounterJournal(self.record.meter, self.books.journal if self.books else None)
        if self.books is not None and self.books.journal.status()[0] in ("running", "failed"):
            warn_of_other_code(self.books.spec, self.record.events)
        self.reception = Reception(
            settings.method,
            self.notices,
            wanted=_describe_wanted(settings),
            rules=_set_rules(settings, source, all_here=all_here),
        )
        self.played: Played | None = None
        self._stop = asyncio.Event()
        self._pinned, self._script, self._all_here = pinned, script, all_here

    @property
    def desk(self) -> Reception | Fleet:
        """The service that answers the sites: the gathering, and the fleet as soon as the run is frozen."""
        return self.reception if self.played is None else self.played.fleet

    def _find_unfinished(self) -> Books | None:
        """Find an unfinished run before any port is open: an error about changed settings is for the operator alone."""
        try:
            return self.runs.unfinished(self.settings)
        except BaseException:
            self.runs.close()
            raise

    def _check_weights(self) -> None:
        """Weights that cannot be begun from are an error before anybody waits for sites."""
        try:
            check_weights(self.settings)
        except BaseException:
            self.runs.close()
            raise

    def _find_source(self, pinned: RunSpec | None) -> Source | None:
        """The run to begin from; what is wrong with it is for the operator alone too."""
        name = self.settings.begin_from if pinned is None else pinned.begins_from and pinned.begins_from.run
        if self.books is not None or not name:
            return None
        try:
            source = self.runs.source(name)
            if pinned is None:
                source.check_settings(self.settings)
            return source
        except BaseException:
            self.runs.close()
            raise

    def status(self) -> RunStatus:
        """What `pfl status` shows."""
        return self.desk.status()

    def stop(self) -> None:
        """End the run in good order after this round."""
        self._stop.set()

    async def remove(self, site: ClientId) -> None:
        """Go on without a site that the operator has removed."""
        await self.desk.remove(site)

    def fail(self, words: str) -> None:
        """The run cannot begin, or cannot go on: every site is told why."""
        self._end("failed", words, level="error")

    def _end(self, status: str, words: str, *, level: Level) -> None:
        self.notices.end(status, words, level=level)
        self.desk.end(Over(status, words))

    async def run(self) -> None:
        """From wherever the state folder stands to the run's end."""
        # Before anything is computed in any thread: each takes its number of threads over when it first computes.
        generators.pin_threads(self.settings.threads)
        resumed, room = self.books is not None, self.notices.room
        if self.books is None:
            log.info("waiting for sites", wanted=self.settings.sites)
            sites = await self._gather()
            if sites is None:
                return
            self.books = await room.have(Beginning(self.runs, self.settings, self._pinned).begin, sites)
            await self.counter_journal.begin(self.books.journal, room)
        books = self.books
        # The coordinator's own arithmetic is pinned too: another number of threads may sum in another order.
        generators.pin_threads(books.spec.threads)
        _announce(books.spec)
        await self._play(books, resumed=resumed)

    async def _gather(self) -> Mapping[ClientId, Description] | None:
        """Wait for the sites; None when the operator stopped the run before it had begun."""
        gathering = asyncio.create_task(self.reception.gather(self.settings.sites))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({gathering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if gathering.done():
                return gathering.result()
            self._end("stopped", "the operator stopped the run before it had begun", level="info")
            return None
        finally:
            gathering.cancel()
            stopping.cancel()

    async def _play(self, books: Books, *, resumed: bool) -> None:
        room, events = self.notices.room, self.record.events
        fleet = Fleet(books, self.record, self.notices, resumed=resumed)
        training = Training(
            books,
            fleet,
            script=self._script,
            room=room,
            record=self.record,
            stop=self._stop,
            all_here=self._all_here,
        )
        runs = self.settings.state / "runs"
        baselines = await asyncio.to_thread(find_baselines, runs, books.spec, self._named)
        training.watch.baselines = {method: one.accuracy for method, one in baselines.items()}
        warn_of_baselines(baselines, events)
        fleet.status_line, fleet.took_part = training.status, training.watch.took_part
        fixed = bool(self.settings.classes)
        fleet.warnings = await room.have(asyncio.to_thread, warn_of_classes, books, events, fixed=fixed)
        self.played = Played(fleet, training)
        self.reception.open(fleet)
        # Large results lie beside the checkpoints: the system's temporary folder may be memory.
        with mapped.inside(books.checkpoints.folder):
            await training.run()


def _set_rules(settings: ServerSettings, source: Source | None, *, all_here: bool) -> Rules:
    """What sites must meet: the operator's lists, or those of the run whose models are to go on."""
    if source is None:
        return Rules(
            settings.classes,
            settings.vocabulary,
            read_form(settings.shape),
            settings.fewest_sites,
            image_size=bool(settings.image_size),
            sums=settings.normalise == channel_scaling.AGREED,
            all_here=all_here,
        )
    model = source.spec.model
    return Rules(model.classes, model.words, all_here=all_here, model=model, begins_from=source.spec.id)


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
