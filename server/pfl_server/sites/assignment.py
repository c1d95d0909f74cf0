"""A task given to one site, with what its state machine leaves outside: its download, its upload's file, the answer.

Events go to the state (`decisions.task_state`), which alone decides; its effects are carried out by `OpenTasks.tell`
and here, with no await in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pfl_common.spec.messages import Assignment, Offer
from pfl_common.spec.run import ClientId, Kind, Task
from pfl_server.decisions.lease import Lease
from pfl_server.decisions.task_events import (
    Answer,
    Asked,
    Effect,
    GivenUp,
    Grown,
    LostAt,
    Prepared,
    Receive,
    Remove,
    Unprepared,
)
from pfl_server.decisions.task_state import TaskState
from pfl_server.envelopes import Letter
from pfl_server.sites.service import Incoming
from pfl_server.store.arriving_update import ArrivingUpdate

MOST_BEGINNINGS = 3
"""States that a site may say it begins a task from: one that was killed, or brought back from a copy, says another."""

Prepare = Callable[[Task], Awaitable[Assignment]]
"""Makes the download of a task."""


class SiteLost(Exception):
    """A site will not answer a task; the reason is one word from a fixed list, or "refused:" and a code."""

    def __init__(self, reason: str, stage: LostAt = "called") -> None:
        self.reason = reason
        self.stage: LostAt = stage
        """How far it was."""
        super().__init__(reason)


@dataclass(eq=False)
class Assigned:
    """A task on its way to one site and back."""

    client: ClientId
    task: Task
    prepare: Prepare
    answer: asyncio.Future[str]
    state: TaskState
    incoming: Incoming | None = None
    """The upload under way, which transports count the bytes of."""
    genuine: tuple[Path, int] | None = None
    """Its file, and how many bytes of that are verified to be the site's: nothing is written over them any more."""
    begun: list[tuple[int, int]] = field(default_factory=list)
    """The states of its own that the site has said it begins from, of this run and of the one before."""
    letter: Letter | None = field(default=None, repr=False)
    """Of its last offer (`state.offer`), opened. It goes to the spool with the receipt, or ends with the task."""
    watched: ArrivingUpdate | None = field(default=None, repr=False)
    """The check of the upload under way, if it is checked while it comes."""
    receipt: asyncio.Future[None] = field(init=False, repr=False)
    """The writing of its receipt, from the moment it is promised."""

    async def make(self, since: int, now: Callable[[], float], *, before: int = 0) -> Assignment:
        """Its download, for a site that asks for work. One that says each time that it remembers another round gets the
        download of the last one it was believed: each is a parcel that has to be made.
        """
        begun = (since, before)
        if begun not in self.begun:
            if len(self.begun) >= MOST_BEGINNINGS:
                begun = self.begun[-1]
            else:
                self.begun.append(begun)
        self.state.handle(Asked(now()))
        try:
            made = await self.prepare(replace(self.task, since=begun[0], before=begun[1]))
        except BaseException:
            self.state.handle(Unprepared(now()))
            raise
        self.state.handle(Prepared(made.header, made.blob.digest, now(), made.blob.size))
        return made

    def is_silent(self, now: float, *, lease_seconds: float) -> bool:
        """Whether the site has shown no progress for the time of a lease; bytes that come in are progress too."""
        if self.incoming and self.state.upload and not self.state.is_waited_on:
            self.state.handle(Grown(self.incoming.reached, now))
        return self.state.is_silent(now, lease_seconds=lease_seconds)

    @property
    def lacking(self) -> int:
        """Bytes of disk that are promised to its upload and not taken yet."""
        return self.state.lacking(self.incoming.reached if self.incoming else 0)

    def letter_of(self, offer: Offer) -> Letter | None:
        """The letter of this very offer, if it is open."""
        return self.letter if self.state.offer == offer else None

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect on files and on the answer."""
        match effect:
            case Receive(path, offset, size):
                self.incoming = Incoming(path, offset, size)
            case Remove(path):
                if self.incoming is not None:
                    self.incoming.close()
                path.unlink(missing_ok=True)
            case Answer(update):
                self.answer.set_result(update)
            case GivenUp(reason, stage):
                self.answer.set_exception(SiteLost(reason, stage))
            case _:
                pass


def assign(client: ClientId, task: Task, prepare: Prepare, *, lease: Lease) -> Assigned:
    """Call a site to a task."""
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return Assigned(client, task, prepare, answer, TaskState(task.kind is Kind.TRAIN, lease))
