"""Watches how long a round waits: gives up sites that are silent, much slower than most, or set aside, and all at its
deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

from pfl_common.spec.messages import Over
from pfl_common.spec.rules import ALL
from pfl_common.spec.run import ClientId, Kind, RunSpec
from pfl_server.decisions.round import Lost, TimeUp
from pfl_server.decisions.stragglers import Times, usual_time
from pfl_server.run.attempt import Fleet, Opened

HELD_LEASES = 1 / 3
"""At the end sites that are done wait so long for the others, in leases; then they are told that the run is over."""


class LeaseWatch:
    """Decides how long a site is waited for that has a task."""

    def __init__(self, spec: RunSpec, fleet: Fleet, *, tick: float, stop: asyncio.Event) -> None:
        self._spec, self._fleet, self._tick, self._stop = spec, fleet, tick, stop
        self._times = Times()

    async def during_round(self, opened: Opened, asks: Collection[asyncio.Task[None]]) -> None:
        """Until the deadline, give up each site that need not be waited for any more.

        Nobody is declared lost here: the fleet settles each task once, so that a site whose receipt goes
        out in this very moment is counted, and one that was given up gets none.
        """
        async for losses in self._looks(opened):
            for site, reason in losses.items():
                self._fleet.give_up(site, reason)
        for site in opened.round.awaited:
            self._fleet.give_up(site, "deadline")
        await asyncio.wait(asks)
        opened.events.put_nowait(TimeUp())

    async def at_end(self, opened: Opened, over: Over) -> None:
        """At the end nobody is given up: sites are only no longer waited for, and those that are done may go."""
        clock = asyncio.get_running_loop()
        async for losses in self._looks(opened, at_end=True):
            for site, reason in losses.items():
                opened.events.put_nowait(Lost(site, reason))
            held = clock.time() - opened.began - min(opened.took.values(), default=float("inf"))
            if held > HELD_LEASES * self._spec.lease_seconds:
                self._fleet.release(over)
        opened.events.put_nowait(TimeUp())

    def answered(self, opened: Opened, site: ClientId) -> None:
        """A site has done what it was asked."""
        seconds = asyncio.get_running_loop().time() - opened.began
        opened.took[site] = seconds
        if opened.task.kind is Kind.TRAIN:
            self._times.add(site, seconds)

    async def _looks(self, opened: Opened, *, at_end: bool = False) -> AsyncIterator[dict[ClientId, str]]:
        """Until the deadline, at each look the sites that need not be waited for any more, and why."""
        clock, lease = asyncio.get_running_loop(), self._spec.lease_seconds
        end, judging = clock.time() + self._spec.round_seconds, 0.0
        enough = None
        while (left := end - (before := clock.time())) > 0:
            await asyncio.sleep(min(self._tick, left))
            if clock.time() - before > self._tick + lease / 2:
                # This machine was asleep, not the sites: they get a lease's time to be heard again.
                judging = clock.time() + lease
            if enough is None and self._has_enough(opened, at_end=at_end):
                enough = clock.time()
            late = enough is not None and clock.time() - enough > lease
            if clock.time() > judging:
                slow = self._slow(opened, late=late)
                yield self._skipped(opened) | slow | self._silent(opened, at_end=at_end)

    def _has_enough(self, opened: Opened, *, at_end: bool) -> bool:
        """Whether so many have answered that the others may be measured by them."""
        round_ = opened.round
        asked = len(round_.awaited) + len(round_.counted) + len(round_.losses)
        return 2 * len(round_.counted) > asked if at_end else round_.has_quorum

    def _silent(self, opened: Opened, *, at_end: bool) -> dict[ClientId, str]:
        """Sites whose lease has ended, once only such sites are awaited."""
        # An operator who stops the run does not want to wait for the deadline of a site that is dead.
        patient = self._spec.quorum == ALL and not (self._stop.is_set() or at_end)
        awaited = opened.round.awaited
        silent = [site for site in awaited if self._fleet.expired(site)]
        return {} if patient or len(silent) < len(awaited) else dict.fromkeys(silent, "lease")

    def _skipped(self, opened: Opened) -> dict[ClientId, str]:
        """Sites that are set aside, once only such sites are awaited."""
        awaited = opened.round.awaited
        return dict.fromkeys(awaited, "aside") if opened.skipped.issuperset(awaited) else {}

    def _slow(self, opened: Opened, *, late: bool) -> dict[ClientId, str]:
        """Sites much slower than most. Never where a round waits for all of them, and never within a lease's time from
        the moment when there were enough.
        """
        times = self._spec.straggler
        if not times or self._spec.quorum == ALL or not late or not opened.took:
            return {}
        passed = asyncio.get_running_loop().time() - opened.began
        usual = usual_time(list(opened.took.values()))
        waiting = [site for site in opened.round.awaited if not self._fleet.is_opening(site)]
        given = {
            site: self._times.allow(site, times=times, usual=usual, doubted=site in opened.doubted)
            for site in waiting
        }
        return {site: "straggler" for site in waiting if passed > given[site]}
