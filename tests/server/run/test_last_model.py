"""At the end every site gets the last model, and nobody who is away holds up the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pfl_common.spec.run import Kind
from pfl_server.run.training import Training
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK


def test_an_absent_site_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It is silent at FINISH: the run ends without it, and it finishes when it comes back."""
    spec = build_spec(quorum=1.0)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books, {("c", 2, 1): "silent"})

    async def run() -> list[str]:
        training = Training(books, replace_train_fate(fleet), tick=TICK)
        await training.run()
        assert ("finished", "") == books.journal.status()
        return [task.get_name() for task in training._last_model._asks if not task.done()]

    assert 1 == len(asyncio.run(run()))
    books.journal.close()


def replace_train_fate(fleet: ScriptedFleet) -> ScriptedFleet:
    """Let the script speak of FINISH only."""
    script, fleet.script = fleet.script, {}
    fleet.on_ask = lambda site, task: fleet.script.update(script) if task.kind is Kind.FINISH else None
    return fleet
