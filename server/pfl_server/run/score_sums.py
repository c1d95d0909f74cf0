"""Sums what the sites have measured, when a round ends: sums alone are kept, and shown of a round as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pfl_common import evaluation
from pfl_common.spec.messages import Scores
from pfl_common.spec.run import Kind, Task
from pfl_server.store.disk_wait import Room
from pfl_server.store.journal import Journal


def of_round(task: Task) -> tuple[Task, Task]:
    """A round's training, and its evaluation by sites that only measure; they are not waited for, and one that is
    late is not in the sum.
    """
    return task, replace(task, kind=Kind.EVALUATE)


def keys_of(tasks: Iterable[Task]) -> list[str]:
    """Under which keys the reports for some tasks are kept."""
    return [task.key for task in tasks]


async def sum_up(journal: Journal, room: Room, *tasks: Task) -> Scores | None:
    """Sum the reports for some tasks and write the sum down; None when no site has measured anything."""
    reports = await room.have(journal.reports.soon, *keys_of(tasks))
    total, writing = sum_beside(journal, room, reports, *tasks)
    await writing
    return total


def sum_beside(
    journal: Journal, room: Room, reports: Sequence[Scores], *tasks: Task
) -> tuple[Scores | None, asyncio.Future[None]]:
    """The sum of the reports for some tasks, at once; it is written with what is written next, and the future tells
    when. A coordinator that is killed before sums once more what is left.
    """
    keys = keys_of(tasks)
    total = evaluation.add(evaluation.bounded(evaluation.agreed(reports))) if reports else None
    asked = journal.sum_up.later(keys, total) if total is not None else None
    return total, asyncio.ensure_future(_write(journal, room, keys, total, asked))


async def _write(
    journal: Journal, room: Room, keys: list[str], total: Scores | None, asked: asyncio.Future[None] | None
) -> None:
    """Wait until a sum is on disk; on one that is full it is written as soon as there is room."""
    if total is None or asked is None:
        return

    async def write() -> None:
        nonlocal asked
        first, asked = asked, None
        await (first or journal.sum_up.soon(keys, total))

    await room.have(write)


async def is_summed(journal: Journal, room: Room, task: Task) -> bool:
    """Whether a round was summed: a coordinator killed between commit and sum has the reports, but no sum."""
    return await room.have(journal.is_summed.soon, task.key)
