"""How a run ends: in good order, and in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from pfl_common.spec.messages import Over
from pfl_common.spec.run import Kind
from pfl_common.tensors.state import flat
from pfl_server.run.training import Training
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, last_state, play, trained


def test_stopping(tmp_path: Path) -> None:
    """The round that is under way is closed, every site finishes, the run is `stopped`."""
    spec = build_spec(rounds=9)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: training.stop() if task.round == 2 else None
    asyncio.run(training.run())
    assert {1: 1, 2: 1} == books.journal.committed()
    assert ("stopped", "") == books.journal.status()
    finish = [task for _, task in fleet.asked if task.kind is Kind.FINISH]
    assert [(2, 9)] * 3 == [(task.round, task.rounds) for task in finish]
    assert Over("stopped") == fleet.over
    books.journal.close()


@pytest.mark.parametrize("ending", ["finished", "stopped"])
def test_after_the_end_it_only_serves(tmp_path: Path, ending: str) -> None:
    """The same command once more: no round is played, a site that comes can still finish."""
    spec = build_spec(rounds=2)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    training = Training(books, fleet, tick=TICK)
    fleet.on_ask = lambda site, task: training.stop() if ending == "stopped" else None
    asyncio.run(training.run())
    books.journal.close()
    state = last_state(tmp_path, spec)
    _, again, served = play(tmp_path, spec)
    assert [] == trained(again)
    assert (Over(ending), ending) == (again.over, served.watch.status)
    assert torch.equal(flat(state), flat(last_state(tmp_path, spec)))


def test_a_run_that_never_counted_a_site_says_so(tmp_path: Path) -> None:
    """An error among the events of the run that ends so, and of the coordinator that serves it again; how often each
    site was counted is known after a restart too.
    """
    spec = build_spec()
    lost = {("c", n, 1): "left" for n in (1, 2)}
    for life in (1, 2):
        _, _, training = play(tmp_path, spec, lost)
        told = [event.words for event in training._observer._events.newest() if event.level == "error"]
        assert ["counted in none of 2 rounds: c"] == told, f"life {life}"
        assert {"a": 2, "b": 2} == dict(training.watch.took_part)


def test_a_run_that_counted_everybody_says_nothing(tmp_path: Path) -> None:
    """One round is enough."""
    _, _, training = play(tmp_path, build_spec(), {("c", 1, 1): "left"})
    assert [] == [event for event in training._observer._events.newest() if event.level == "error"]
    assert {"a": 2, "b": 2, "c": 1} == dict(training.watch.took_part)
