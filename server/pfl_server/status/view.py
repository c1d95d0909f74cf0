"""A coordinator's numbers and status for the outside, at any moment of its life."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from pfl_common.spec.messages import RunStatus
from pfl_server.run.attempt import Watch
from pfl_server.run.host import RunHost
from pfl_server.status.probe import Ends, Surroundings
from pfl_server.telemetry.counter_reading import Reading
from pfl_server.telemetry.disclosure import MOST_NAMED


class View:
    """Reads the run; it writes only the counters it shows, so that they do not fall back after a kill."""

    def __init__(self, host: RunHost, find_ends: Ends) -> None:
        self._host = host
        self._surroundings = Surroundings(host.settings.state, find_ends)
        self._told: Reading | None = None

    async def look(self) -> None:
        """See to what is slow to look at, if that was not done lately; write down what is about to be told."""
        books, played = self._host.books, self._host.played
        run = None if books is None else self._host.settings.state / "runs" / books.spec.id
        await self._surroundings.look(run, () if played is None else played.fleet.members())
        self._told = await self._host.counter_journal.tell()

    @property
    def watch(self) -> Watch | None:
        """The run's numbers, once there is a run and all of it is known again that was before."""
        watch = self._host.played.training.watch if self._host.played else None
        return watch if watch is not None and watch.recalled else None

    @property
    def counters(self) -> Reading:
        """Traffic, time and refusals, as of the last look."""
        return self._told or self._host.record.meter.read()

    @property
    def named(self) -> tuple[str, str, str]:
        """Run, method and version of this program."""
        books = self._host.books
        run, method = (
            ("", self._host.settings.method) if books is None else (books.spec.id, books.spec.method)
        )
        return run, method, version("pfl-net")

    @property
    def state(self) -> str:
        """How the run stands, in one word."""
        played = self._host.played
        return self._host.notices.ended or ("gathering" if played is None else played.training.watch.status)

    @property
    def planned(self) -> int:
        """Rounds the run is to have."""
        books = self._host.books
        return self._host.settings.rounds if books is None else books.spec.rounds

    @property
    def heard(self) -> tuple[int, int, int]:
        """Registered sites that are here, those that are away, and those that have said goodbye."""
        return self._host.desk.heard()

    @property
    def members(self) -> Mapping[str, tuple[bool, int]]:
        """By site whether it is here and in how many rounds it was counted; empty unless the operator asks for it."""
        sites = self._host.status().sites if self._host.record.disclosure.by_site else ()
        return {one.site: (one.state == "here", one.counted) for one in sites if len(sites) <= MOST_NAMED}

    @property
    def around(self) -> Mapping[str, float]:
        """Disk and checkpoint, as they were at the last look."""
        return self._surroundings.numbers

    @property
    def ends(self) -> Mapping[str, float]:
        """When certificates end."""
        return self._surroundings.ends

    def status(self) -> RunStatus:
        """The content of `pfl status`."""
        return self._host.status()
