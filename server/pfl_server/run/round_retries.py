"""Decides how often a round is tried: when an attempt may begin, when one that was abandoned is tried again, and when
the run is given up.

Whether an attempt is abandoned follows from who was counted: `decisions/round.py`. A site that was lost several times
in a row is set aside (`decisions/stragglers.py`): no quorum counts on it until it delivers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from time import time

from pfl_common.app.backoff import BackOff
from pfl_common.errors import RunFailed
from pfl_common.spec.run import ClientId
from pfl_server.decisions import sampling
from pfl_server.decisions.sampling import Draw
from pfl_server.decisions.stragglers import LASTING, REST, Losses, leave_out
from pfl_server.run.attempt import Script
from pfl_server.run.attempt_play import AttemptPlay, Ended, Plan, RunParts
from pfl_server.store.journal import Attempt
from pfl_server.store.round_base import Base

ATTEMPTS = 20
"""Abandoned attempts at one round before the run is given up: nothing hangs for ever."""
TRYING_TICKS = 3600
"""And looks at the clock, a quarter of a second each: one site that says no at once, again and again, does not end a
run in seconds.
"""
FIRST_PAUSE_TICKS, LONGEST_PAUSE_TICKS = 2, 120
"""Between two attempts at a round, longer each time."""
MOST_UNSAID = 3
"""So many attempts are abandoned before the operator is told on every page."""
MOST_NAMED = 5
TAMPERED = "tampered"
"""Declined so by a site whose download does not lead where the coordinator signed."""


class RoundRetries:
    """Plays rounds, each in as many attempts as it takes."""

    def __init__(  # noqa: PLR0913  # what rounds are played with, and how patiently
        self,
        parts: RunParts,
        attempts: AttemptPlay,
        *,
        script: Script | None,
        tick: float,
        stop: asyncio.Event,
        all_here: bool = False,
    ) -> None:
        self._losses, self._all_here = Losses(), all_here
        self._books, self._fleet, self._room = parts.books, parts.fleet, parts.room
        self._observer, self._attempts, self._fall_back = parts.observer, attempts, attempts.fall_back
        self.base = parts.books.beginning
        self._script, self._tick, self._stop = script, tick, stop

    async def recall(self) -> None:
        """After a restart: the attempts so far are in the journal, with the sites that were lost in each."""
        until = asyncio.get_running_loop().time() + REST * self._books.spec.lease_seconds
        self._losses.recall(await self._room.have(self._books.journal.rounds.soon), rest_until=until)

    def aside(self) -> frozenset[ClientId]:
        """Sites that are set aside."""
        return self._losses.aside()

    async def play(self, number: int, base: Base) -> Base | None:
        """One round, in as many attempts as it takes; gives what the next begins from. None when the run was stopped
        before one succeeded: then `self.base` is what it would have begun from.
        """
        self.base = base
        await self._follow_script(number)
        clock = asyncio.get_running_loop().time
        pauses = BackOff(FIRST_PAUSE_TICKS * self._tick, LONGEST_PAUSE_TICKS * self._tick)
        end, tried = clock() + TRYING_TICKS * self._tick, 0
        while tried < ATTEMPTS or (clock() < end and not self._all_here):
            began = clock()
            if tried:
                await self._pause(self._tick if self._all_here else pauses.take())
            drawn = await self._draw(number, again=tried > 0)
            self._observer.took("wait", clock() - began)
            if drawn is None:
                return None
            ended = await self._attempt(number, *drawn)
            if ended.base is not None:
                return ended.base
            if self._fall_back.after(number) != self.base.after:
                self.base = await self._fall_back.load(number)
            tried += 1
            self._check_hope(number, ended, tried)
        raise RunFailed(
            f"round {number} was abandoned {tried} times: see the journal for each reason{self._tell_lost()}"
        )

    async def _attempt(self, number: int, candidates: tuple[ClientId, ...], draw: Draw) -> Ended:
        """Open an attempt, or the one that a restarted coordinator had open, and play it."""
        found = await self._room.have(self._open, number, candidates, draw)
        out = leave_out(found.draw, self._losses.aside())
        clock = asyncio.get_running_loop().time
        tried = self._losses.tried(self._fleet.present_among(self._losses.aside()), clock())
        doubted, whole = self._losses.doubted() - tried, self._losses.lost_to(TAMPERED)
        plan = Plan(self._quorum(found.draw, out), out - tried, doubted, whole)
        ended = await self._attempts.play(found, self.base, plan)
        held = {site: seconds for site, seconds in ended.held.items() if site not in plan.skipped}
        for site in self._losses.take(found.draw.cohort, ended.losses, held=held, now=clock()):
            self._observer.set_aside(site, ended.losses[site])
        return ended

    async def _open(self, number: int, candidates: tuple[ClientId, ...], draw: Draw) -> Attempt:
        """Written and read in one go."""
        journal = self._books.journal
        opening = journal.open_attempt.later(number, candidates, draw, at=time())
        _, found = await asyncio.gather(opening, journal.attempt.soon(number))
        return found

    def _quorum(self, draw: Draw, out: Collection[ClientId]) -> int:
        """The number of updates that must be counted; sites that were left out are expected as little as drop-outs."""
        return Draw(draw.cohort, draw.drops | frozenset(out)).quorum(self._books.spec.quorum)

    async def _pause(self, seconds: float) -> None:
        """Before the next attempt, unless the run is stopped meanwhile."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _check_hope(self, number: int, ended: Ended, tried: int) -> None:
        """End the run at once when every site has declined for good; in one process, when any has: without it the
        result would be another one.
        """
        lasting = {site for site, reason in ended.losses.items() if reason in LASTING}
        if lasting and (self._all_here or lasting.issuperset(self._fleet.roster())):
            raise RunFailed(f"round {number} cannot be trained{self._tell_lost(lasting)}")
        if tried >= MOST_UNSAID:
            told = f"round {number} was abandoned {tried} times{self._tell_lost()}"
            self._observer.watch.words = f"{ended.words}. {told}" if ended.words else told

    def _tell_lost(self, sites: Collection[ClientId] | None = None) -> str:
        """Why sites that were lost in the last attempt have said that they were."""
        lost = self._losses.lost()
        named = sorted(lost if sites is None else sites)
        told = [f"{site} {self._fleet.trouble(site) or f'({lost[site]})'}" for site in named[:MOST_NAMED]]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        return f"; {'; '.join(told)}{more}" if told else ""

    async def _follow_script(self, number: int) -> None:
        """Fall back where the run did that is replayed."""
        after = self._fall_back.after(number) if self._script is None else self._script.after(number)
        if after != self._fall_back.after(number):
            await self._room.have(self._books.journal.fall_back.soon, number, after)
            self._fall_back.decide(number, after)
        if after != self.base.after:
            self.base = await self._fall_back.load(number)

    async def _draw(self, number: int, *, again: bool) -> tuple[tuple[ClientId, ...], Draw] | None:
        """Draw a cohort once one of its sites is here; after an abandoned attempt, once enough are here for the next to
        succeed: with fewer, every attempt would only burn its number. None when the run is stopped.
        """
        if self._script is not None:
            return self._script.draw(number)
        clock, spec, rule = asyncio.get_running_loop(), self._books.spec, self._books.spec.participation
        end, drawn = clock.time() + spec.round_seconds, None
        while not self._stop.is_set():
            candidates = self._candidates(again=again)
            if spec.candidates == "present" and rule.fixed and not set(rule.fixed) & set(candidates):
                candidates = ()  # those who are here are not asked, and those who are may come
            if candidates:
                if drawn is None or drawn[0] != candidates:
                    # Of ten thousand it takes as long as ten calls: once, and not each time somebody may have come.
                    draw = sampling.draw(rule, seed=spec.seed, number=number, candidates=candidates)
                    drawn = candidates, draw
                draw = drawn[1]
                out = leave_out(draw, self._losses.aside())
                wanted = self._quorum(draw, out) if again else 0
                here = self._fleet.present_among(draw.cohort)
                if here and len(here - draw.drops - out) >= wanted:
                    return candidates, draw
            if clock.time() > end:
                waited = f"{spec.round_seconds:.0f} s"
                seen = "too few sites of the cohort were" if again else "no site of the cohort was"
                raise RunFailed(f"{seen} heard for {waited} before round {number}")
            await asyncio.sleep(self._tick)
        return None

    def _candidates(self, *, again: bool) -> tuple[ClientId, ...]:
        """From whom a cohort is drawn. After an abandoned attempt sites that are set aside are not, or a round that
        draws them could never be closed; but never so few that one site alone is left.
        """
        spec, fleet = self._books.spec, self._fleet
        every = fleet.present() if spec.candidates == "present" else fleet.roster()
        if not again or spec.participation.fixed:
            return every
        aside = self._losses.aside()
        others = tuple(site for site in every if site not in aside)
        return others if len(others) > 1 and 2 * len(others) > len(every) else every

    async def abandon_open(self) -> None:
        """At the run's end, abandon the attempt that a killed coordinator left open: its receipts count no more."""
        for row in await self._room.have(self._books.journal.rounds.soon):
            if row["status"] == "open":
                number, attempt = int(str(row["round"])), int(str(row["attempt"]))
                why = "the run was stopped"
                await self._room.have(self._books.journal.abandon.soon, number, attempt, {}, why)
                self._observer.watch.outcomes["abandoned"] += 1
