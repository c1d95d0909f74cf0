"""Watches a round's leases and its deadline: gives up the sites that are silent, once only such sites are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from pfl_common.spec.rules import ALL
from pfl_common.spec.run import ClientId, RunSpec
from pfl_server.decisions.round import Lost, Round, TimeUp
from pfl_server.run.attempt import Fleet, Opened


class LeaseWatch:
    """Decides how long a site is waited for that has a task."""

    def __init__(self, spec: RunSpec, fleet: Fleet, *, tick: float, stop: asyncio.Event) -> None:
        self._spec, self._fleet, self._tick, self._stop = spec, fleet, tick, stop

    async def during_round(self, opened: Opened, asks: Collection[asyncio.Task[None]]) -> None:
        """The deadline; and sites whose lease has ended are given up once only such sites are awaited.

        Nobody is declared lost here: the fleet settles each task once, so that a site whose receipt goes
        out in this very moment is counted, and one that was given up gets none.
        """
        async for silent in self._silences(opened.round):
            # An operator who stops the run does not want to wait for the deadline of a site that is dead.
            patient = self._spec.quorum == ALL and not self._stop.is_set()
            if not patient and len(silent) == len(opened.round.awaited):
                for site in silent:
                    self._fleet.give_up(site, "lease")
        for site in opened.round.awaited:
            self._fleet.give_up(site, "deadline")
        await asyncio.wait(asks)
        opened.events.put_nowait(TimeUp())

    async def at_end(self, opened: Opened) -> None:
        """At the end nobody is given up: who is silent is only no longer waited for."""
        async for silent in self._silences(opened.round):
            if len(silent) == len(opened.round.awaited):
                for site in silent:
                    opened.events.put_nowait(Lost(site, "lease"))
        opened.events.put_nowait(TimeUp())

    async def _silences(self, round_: Round) -> AsyncIterator[list[ClientId]]:
        """Until the deadline, the awaited sites that show no progress, whenever there are any."""
        clock, lease = asyncio.get_running_loop(), self._spec.lease_seconds
        end, judging = clock.time() + self._spec.round_seconds, 0.0
        while (left := end - (before := clock.time())) > 0:
            await asyncio.sleep(min(self._tick, left))
            if clock.time() - before > self._tick + lease / 2:
                # This machine was asleep, not the sites: they get a lease's time to be heard again.
                judging = clock.time() + lease
            silent = [site for site in round_.awaited if self._fleet.expired(site)]
            if silent and clock.time() > judging:
                yield silent
