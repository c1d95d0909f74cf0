"""Goes back one checkpoint when the updates of most sites run away: the round before may have spoiled the model.

One round that counted a poisoned update can leave a model on which every honest site diverges. The next attempt then
begins from the state before that round. The round stays committed, for its sites trained from that earlier state and
keep what they learnt; only its shared state goes. A round falls back once: if its updates run away again, it was not
the round before, and the run ends as any that diverges (`divergence_guard.py`).
"""

from __future__ import annotations

import structlog

from pfl_common.spec.run import ClientId, Kind, Task
from pfl_server.decisions.divergence import Outcome, name_sites
from pfl_server.run.checkpoint_repair import load_after
from pfl_server.store.disk_wait import Room
from pfl_server.store.round_base import Base
from pfl_server.store.run_store import Books
from pfl_server.telemetry.event_log import Events

log = structlog.get_logger("pfl.training")

WORDS = (
    "round {number} begins from the state after round {back_to}: that of round {spoilt} is dropped, which had counted "
    "{counted}; what to do: look at what these sites sent. If one of them cannot be trusted, end the run (pfl stop) "
    "and begin another without it, or one that bears such a site (--robust median)"
)


class FallBack:
    """Which rounds begin from an older state than that of the round before. The journal knows it too."""

    def __init__(self, books: Books, room: Room, events: Events) -> None:
        self._books, self._room, self._events = books, room, events
        self._back: dict[int, int] = {}

    async def recall(self) -> None:
        """After a restart: what was decided before."""
        self._back = await self._room.have(self._books.journal.fallbacks.soon)

    def after(self, number: int) -> int:
        """After which round the state stood that a round begins from."""
        return self._back.get(number, number - 1)

    def target(self, task: Task, outcome: Outcome) -> int | None:
        """The round after which the state stands that is gone back to when an attempt ends so; None to stay."""
        number, spoilt = task.round, task.round - 1
        if not outcome.most_diverge or spoilt < 1 or number in self._back:
            return None
        older, books = self.after(spoilt), self._books
        # An older phase's state may lack what this phase sends.
        fits = books.task(Kind.TRAIN, spoilt, 1).phase == task.phase
        kept = {checkpoint.round for checkpoint in books.checkpoints.generations()} | {0}
        return older if fits and older in kept else None

    def decide(self, number: int, back_to: int) -> None:
        """It is in the journal."""
        self._back[number] = back_to

    async def load(self, number: int) -> Base:
        """The state that this round begins from; the one that is dropped goes from the disk."""
        return await load_after(self._books, self._room, self.after(number))

    async def tell(self, number: int) -> str:
        """What happened and what to do, for the operator; nothing of a round that did not fall back."""
        if number not in self._back:
            return ""
        journal, spoilt = self._books.journal, number - 1
        counted: tuple[ClientId, ...] = await self._room.have(
            journal.counted.soon, spoilt, journal.committed()[spoilt]
        )
        back_to = self._back[number]
        return WORDS.format(number=number, back_to=back_to, spoilt=spoilt, counted=name_sites(counted))

    async def announce(self, number: int) -> None:
        """Into the log and the events, once it is decided."""
        words = await self.tell(number)
        log.error(
            "the run falls back one checkpoint", round=number, begins_after=self._back[number], words=words
        )
        self._events.add(words, "error")
