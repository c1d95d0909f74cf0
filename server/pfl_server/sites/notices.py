"""Notices for people before and during a run: sites that were not taken, odd data, a failure, a full disk."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import time

import structlog

from pfl_common.errors import Refused
from pfl_common.identity import tell_fingerprint
from pfl_common.spec.messages import Level, RunStatus, shorten
from pfl_common.spec.run import ClientId, Description
from pfl_server.store.disk_wait import Room
from pfl_server.telemetry.event_log import Events
from pfl_server.telemetry.rejections import readable

log = structlog.get_logger("pfl.reception")

MOST_REFUSED = 50
"""Sites that were not taken are told apart up to here; invitations bound how many there can be."""
MOST_NOTED = 10
"""So often one site's warnings are logged: one that says others at each joining would fill the disk."""
UNFIT = ("classes", "shape")
"""Refusals of a site's data: a person at the site has to act."""


class Notices:
    """Kept by the gathering and the fleet together, since none of it ends when a run begins."""

    def __init__(self, room: Room | None = None, events: Events | None = None) -> None:
        self.room, self.events = room or Room(Path()), events or Events()
        self._refused: dict[ClientId, str] = {}
        self._noted: dict[ClientId, tuple[str, ...]] = {}
        self._times_noted: Counter[ClientId] = Counter()
        self.ended = ""
        """`failed` or `stopped` if the run came to its end outside its rounds, else nothing."""
        self._why = ""
        self._gathered: set[ClientId] = set()
        self._untold: set[ClientId] = set()
        self.waiting: dict[ClientId, str] = {}
        """Sites that are invited and wait to be approved, each with the fingerprint of its keys."""
        self._all_told = asyncio.Event()

    @contextmanager
    def joining(self, site: ClientId, description: Description) -> Iterator[None]:
        """Held while a site's join is answered: keeps why the site was refused for the operator, until it is taken."""
        self._note_warnings(site, description)
        try:
            yield
        except Refused as refused:
            if refused.code in UNFIT:
                self._gathered.discard(site)
                if site in self._refused or len(self._refused) < MOST_REFUSED:
                    self._refused[site] = readable(refused.words)
            raise
        self._refused.pop(site, None)

    def _note_warnings(self, site: ClientId, description: Description) -> None:
        """Pass a site's warnings about its own data on to the operator."""
        warnings = shorten(description.warnings)
        if self._noted.get(site, ()) != warnings and self._times_noted[site] < MOST_NOTED:
            self._times_noted[site] += 1
            for words in warnings:
                log.warning("a site's data", site=site, warning=words)
        self._noted[site] = warnings

    def gathered(self, site: ClientId) -> None:
        """A site has come before the run: it is waited for when it has to be told of a failure."""
        self._gathered.add(site)

    def left(self, site: ClientId) -> None:
        """A site has said goodbye: it need not be told anything."""
        self._gathered.discard(site)
        self._tell(site)

    def end(self, status: str, words: str, *, level: Level) -> None:
        """The run cannot begin, or cannot go on, or is not wanted: every site is told so."""
        self.ended, self._why = status, words
        self.events.add(f"run {status}: {words}", level)
        self._untold = set(self._gathered)
        self._all_told.clear()

    def check_not_ended(self, site: ClientId) -> None:
        """Tell a site that joins why there is no run any more, if so."""
        if self.ended:
            self._tell(site)
            raise Refused("run_failed", self._why)

    async def farewell(self, seconds: float) -> None:
        """After a failure: wait until the sites that had come have heard of it, but no longer than this."""
        if self._untold:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_told.wait(), seconds)

    def _tell(self, site: ClientId) -> None:
        self._untold.discard(site)
        if not self._untold:
            self._all_told.set()

    def add_to(self, seen: RunStatus) -> RunStatus:
        """A status with these notices in it."""
        return replace(
            seen,
            status=self.ended or seen.status,
            words=self._why or self.room.words or seen.words,
            refused=dict(sorted(self._refused.items())),
            waiting={site: tell_fingerprint(keys) for site, keys in sorted(self.waiting.items())},
            now=time(),
            events=self.events.newest(),
        )
