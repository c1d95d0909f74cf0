"""A run that is stopped ends soon, also when a site it waits for is dead."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pfl_common.spec.messages import Over
from pfl_server.decisions.sampling import Draw
from pfl_server.run.training import Training
from tests.server.support.federation import ScriptedFleet, build_spec, open_run


@pytest.mark.parametrize("away", [set(), {"a", "b", "c"}])
async def test_a_dead_site_does_not_hold_up_the_end(tmp_path: Path, away: set[str]) -> None:
    """With quorum 1 a round waits for everybody until its deadline, but not once the run is stopped: the round is
    abandoned, which is recorded, and the sites that are here finish with the state before it.
    """
    books = open_run(tmp_path, build_spec(quorum=1.0))
    fleet = ScriptedFleet(books, {("b", 2, 1): "silent"})
    training = Training(books, fleet, tick=0.01)

    def watch(site: str, task: object) -> None:
        if training.watch.round == 2 and site == "c":
            fleet.here -= away
            training.stop()

    fleet.on_ask = watch
    await asyncio.wait_for(training.run(), 20)
    assert Over("stopped") == fleet.over
    assert {1: 1} == dict(books.journal.committed())
    assert [("committed", ""), ("abandoned", "lease")] == [
        (row["status"], str(dict(row["losses"]).get("b", ""))) for row in books.journal.rounds()
    ]
    books.journal.close()


async def test_stopped_while_nobody_is_here(tmp_path: Path) -> None:
    """No round is opened for sites that do not come, and what a killed coordinator had open is abandoned."""
    books = open_run(tmp_path, build_spec())
    books.journal.open_attempt(1, "abc", _everybody())
    fleet = ScriptedFleet(books)
    fleet.here = set()
    training = Training(books, fleet, tick=0.01)
    running = asyncio.create_task(training.run())
    await asyncio.sleep(0)
    training.stop()
    await asyncio.wait_for(asyncio.shield(running), 20)
    assert ["abandoned"] == [row["status"] for row in books.journal.rounds()]
    assert Over("stopped") == fleet.over
    assert ("stopped", ("a", "b", "c")) == (training.status().status, training.status().awaited)
    fleet.here = {"a"}
    fleet._silent["a"].set_result("")
    await asyncio.sleep(0)
    assert ("b", "c") == training.status().awaited
    books.journal.hand_out("000001-1-finish", "b", 0)
    fleet = ScriptedFleet(books)
    fleet.here = set()
    again = Training(books, fleet, tick=0.01)
    await asyncio.wait_for(again.run(), 20)
    assert ("a", "c") == again.status().awaited
    books.journal.close()


def _everybody() -> Draw:
    return Draw(("a", "b", "c"), frozenset())
