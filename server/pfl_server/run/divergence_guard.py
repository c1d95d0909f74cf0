"""Ends a run whose training diverges, and warns the operator from the first diverging attempt on."""

from __future__ import annotations

import json
from dataclasses import replace

import structlog

from pfl_common.app.config import dump
from pfl_common.errors import RunFailed
from pfl_common.spec.run import Task
from pfl_server.decisions.divergence import Divergence, Outcome, Rate, tell_attempt, tell_end, tell_scaling
from pfl_server.decisions.round import Round
from pfl_server.decisions.sampling import Draw
from pfl_server.run.attempt import Watch
from pfl_server.store.disk_wait import Room
from pfl_server.store.run_store import Books
from pfl_server.telemetry.event_log import Events

log = structlog.get_logger("pfl.training")


class Guard:
    """Checks each ended attempt for divergence; attempts before a restart count too."""

    def __init__(self, books: Books, room: Room, events: Events, watch: Watch) -> None:
        self._books, self._room, self._events, self._watch = books, room, events, watch
        self._divergence = Divergence()
        self.words = ""
        """What the operator has to know of a training that diverges; nothing while it does not."""

    async def recall(self, *, back: str = "") -> None:
        """After a restart: the attempts so far are in the journal, with why each update was lost."""
        rows = await self._room.have(self._books.journal.rounds.soon)
        fell_back = await self._room.have(self._books.journal.fallbacks.soon)
        read = ((row, Outcome.read(row, self._books.spec.quorum)) for row in rows)
        self._divergence = Divergence(
            replace(outcome, fell_back=row.get("round") in fell_back)
            for row, outcome in read
            if outcome is not None
        )
        if self._divergence.streak:
            words = f"training diverges: {self._divergence.often} so far"
            self._watch.words = self.words = f"{words}. {back}" if back else words

    async def judge(self, task: Task, draw: Draw, ended: Round, *, committed: bool, back: str = "") -> None:
        """An attempt is over and written down; `back` says where the run fell back to, if it did. Raises RunFailed when
        it was one too many.
        """
        counted, quorum = len(ended.counted), self._books.spec.quorum
        outcome = Outcome.of(draw, quorum, counted, ended.losses, committed=committed)
        over = self._divergence.take(replace(outcome, fell_back=bool(back)))
        streak = self._divergence.streak
        place = f"round {task.round}, attempt {task.attempt}"
        if outcome.diverges:
            words = tell_attempt(outcome, place, streak)
            self._watch.words = self.words = f"{words}. {back}" if back else words
            log.error("training diverges", where=place, sites=list(outcome.diverged), in_a_row=streak)
            self._events.add(words, "error")
        elif not streak:
            self._watch.words = self.words = ""
        if over:
            told = await self._scaling()
            raise RunFailed(
                tell_end(outcome, place, often=self._divergence.often, lr=self._rate(), scaling=told)
            )

    def _rate(self) -> Rate:
        usual = dump(self._books.method.settle({}))
        return Rate(self._books.spec.settings.get("lr"), usual.get("lr"))

    async def _scaling(self) -> str:
        sites = await self._room.have(self._books.journal.sites.soon)
        return tell_scaling(self._books.spec.model, {site: _range_of(text) for site, text in sites.items()})


def _range_of(description: str) -> tuple[float, float]:
    """Smallest and largest number of a site, as it described its data; nothing where an older release did not ask."""
    said = json.loads(description)
    return float(said.get("low", 0.0)), float(said.get("high", 0.0))
