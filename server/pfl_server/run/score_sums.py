"""Sums what the sites have measured, when a round ends: sums alone are kept, and shown of a round as a whole."""

from __future__ import annotations

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


async def sum_up(journal: Journal, room: Room, *tasks: Task) -> Scores | None:
    """Sum the reports for some tasks and write the sum down; None when no site has measured anything."""
    keys = [task.key for task in tasks]
    reports = await room.have(journal.reports.soon, *keys)
    if not reports:
        return None
    total = evaluation.add(evaluation.bounded(evaluation.agreed(reports)))
    await room.have(journal.sum_up.soon, keys, total)
    return total


async def is_summed(journal: Journal, room: Room, task: Task) -> bool:
    """Whether a round was summed: a coordinator killed between commit and sum has the reports, but no sum."""
    return await room.have(journal.is_summed.soon, task.key)
