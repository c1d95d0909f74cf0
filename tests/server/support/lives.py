"""One life of a coordinator's training, and what it left."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pfl_common.spec.run import Kind, RunSpec
from pfl_common.tensors.state import State
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Weighted
from pfl_server.run.training import Training
from pfl_server.store.run_store import Books
from tests.server.support.federation import ScriptedFleet, make_update, open_run

TICK = 0.001

Script = dict[tuple[str, int, int], str]


def play(folder: Path, spec: RunSpec, script: Script | None = None) -> tuple[Books, ScriptedFleet, Training]:
    """One run from where its folder stands to its end; the books are closed."""
    books = open_run(folder, spec)
    fleet = ScriptedFleet(books, script)
    training = Training(books, fleet, tick=TICK)
    try:
        asyncio.run(training.run())
    finally:
        books.journal.close()
    return books, fleet, training


def last_state(folder: Path, spec: RunSpec) -> State:
    books = open_run(folder, spec)
    _, state = books.checkpoints.load(upto=spec.rounds)
    books.journal.close()
    return state


def trained(fleet: ScriptedFleet) -> list[tuple[str, int, int]]:
    return [(site, task.round, task.attempt) for site, task in fleet.asked if task.kind is Kind.TRAIN]


def rounds(folder: Path, spec: RunSpec) -> list[dict[str, object]]:
    books = open_run(folder, spec)
    found = books.journal.rounds()
    books.journal.close()
    return found


def expected(spec: RunSpec, first: State, counted: list[str], number: int) -> State:
    """A round of averaging as its definition says."""
    total = Sum()
    for site in sorted(counted):
        up = make_update(spec, site, number, around=first)
        total.add({name: Weighted(up[f"sum.{name}"], up[f"weight.{name}"]) for name in first})
    return total.mean(first)


def stop_after(folder: Path, spec: RunSpec, number: int, script: Script) -> None:
    """Kill the coordinator when it opens the round after this one."""
    books = open_run(folder, spec)
    fleet = ScriptedFleet(books, script)

    async def run() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        fleet.on_ask = lambda site, task: training.cancel() if task.round > number else None
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(run())
    assert number == max(books.journal.committed())
    books.journal.close()
