"""Decides how often a round is tried: when an attempt may begin, when one that was abandoned is tried again, and when
the run is given up.

Whether an attempt is abandoned follows from who was counted: `decisions/round.py`.
"""

from __future__ import annotations

import asyncio
from time import time

from pfl_common.errors import RunFailed
from pfl_common.spec.run import ClientId
from pfl_common.tensors.state import State
from pfl_server.decisions import sampling
from pfl_server.decisions.sampling import Draw
from pfl_server.run.attempt import Base, Script
from pfl_server.run.attempt_play import AttemptPlay, RunParts

ATTEMPTS = 20
"""Abandoned attempts at one round before the run is given up: nothing hangs for ever."""


class RoundRetries:
    """Plays rounds, each in as many attempts as it takes."""

    def __init__(
        self,
        parts: RunParts,
        attempts: AttemptPlay,
        *,
        script: Script | None,
        tick: float,
        stop: asyncio.Event,
    ) -> None:
        self._books, self._fleet, self._room = parts.books, parts.fleet, parts.room
        self._observer, self._attempts, self._fall_back = parts.observer, attempts, attempts.fall_back
        self.base = Base(0, parts.books.first)
        self._script, self._tick, self._stop = script, tick, stop

    async def play(self, number: int, base: Base) -> State | None:
        """One round, in as many attempts as it takes; None when the run was stopped before one succeeded: then
        `self.base` is the state that it would have begun from.
        """
        self.base = base
        await self._follow_script(number)
        for tried in range(ATTEMPTS):
            began = asyncio.get_running_loop().time()
            drawn = await self._draw(number, again=tried > 0)
            self._observer.took("wait", asyncio.get_running_loop().time() - began)
            if drawn is None:
                return None
            candidates, draw = drawn
            journal, now = self._books.journal, time()
            attempt = await self._room.have(journal.open_attempt.soon, number, candidates, draw, at=now)
            found = await self._room.have(journal.attempt.soon, number, attempt)
            closed = await self._attempts.play(found, self.base)
            if closed is not None:
                return closed
            if self._fall_back.after(number) != self.base.after:
                self.base = await self._fall_back.load(number)
        raise RunFailed(f"round {number} was abandoned {ATTEMPTS} times: see the journal for each reason")

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
        end = clock.time() + spec.round_seconds
        while not self._stop.is_set():
            present = self._fleet.present()
            candidates = present if spec.candidates == "present" else self._fleet.roster()
            if spec.candidates == "present" and rule.fixed and not set(rule.fixed) & set(candidates):
                candidates = ()  # those who are here are not asked, and those who are may come
            if candidates:
                draw = sampling.draw(rule, seed=spec.seed, number=number, candidates=candidates)
                wanted = draw.quorum(spec.quorum) if again else 0
                here = set(draw.cohort) & set(present)
                if here and len(here - draw.drops) >= wanted:
                    return candidates, draw
            if clock.time() > end:
                waited = f"{spec.round_seconds:.0f} s"
                seen = "too few sites of the cohort were" if again else "no site of the cohort was"
                raise RunFailed(f"{seen} heard for {waited} before round {number}")
            await asyncio.sleep(self._tick)
        return None

    async def abandon_open(self) -> None:
        """At the run's end, abandon the attempt that a killed coordinator left open: its receipts count no more."""
        for row in await self._room.have(self._books.journal.rounds.soon):
            if row["status"] == "open":
                number, attempt = int(str(row["round"])), int(str(row["attempt"]))
                why = "the run was stopped"
                await self._room.have(self._books.journal.abandon.soon, number, attempt, {}, why)
                self._observer.watch.outcomes["abandoned"] += 1
