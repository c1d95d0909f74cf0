"""The story of a run, with sites that answer by a script: what is asked, counted, told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from pfl_common.errors import RunFailed
from pfl_common.evaluation import add
from pfl_common.spec.messages import Over
from pfl_common.spec.run import Kind
from pfl_common.tensors.state import flat
from pfl_server.run.training import Training
from tests.server.support.federation import ScriptedFleet, build_spec, measure, open_run
from tests.server.support.lives import TICK, expected, last_state, play, trained


def test_a_full_run(tmp_path: Path) -> None:
    """Every site trains in every round and finishes; the state is the mean of the means; everyone is told."""
    spec = build_spec()
    books, fleet, training = play(tmp_path, spec)
    state = books.first
    for number in (1, 2):
        state = expected(spec, state, ["a", "b", "c"], number)
    assert torch.equal(flat(state), flat(last_state(tmp_path, spec)))
    assert [(site, n, 1) for n in (1, 2) for site in "abc"] == trained(fleet)
    assert ["a", "b", "c"] == [site for site, task in fleet.asked if task.kind is Kind.FINISH]
    assert (Over("finished"), "finished") == (fleet.over, training.status().status)
    assert {"committed": 2} == training.watch.outcomes


def test_the_sums_of_evaluations(tmp_path: Path) -> None:
    """Each round's reports are summed and the single ones forgotten; the status shows the last of them."""
    spec = build_spec()
    _, _, training = play(tmp_path, spec)
    books = open_run(tmp_path, spec)
    found = books.journal.scores()
    assert {"000001-1-train", "000002-1-train", "000002-1-finish"} == found.keys()
    assert add(measure(site, 2) for site in "abc") == found["000002-1-train"]
    assert [] == books.journal.reports("000001-1-train")
    assert 3.0 == training.status().scores["sites"]
    books.journal.close()


def test_a_failed_run_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    """The journal keeps the reason; once somebody is there, the same run goes on to its end."""
    books = open_run(tmp_path, build_spec(rounds=1, round_seconds=0.02))
    fleet = ScriptedFleet(books)
    fleet.here = set()
    with pytest.raises(RunFailed) as failed:
        asyncio.run(Training(books, fleet, tick=TICK).run())
    assert ("failed", str(failed.value)) == books.journal.status()
    fleet.here = set(fleet.sites)
    asyncio.run(Training(books, fleet, tick=TICK).run())
    assert "finished" == books.journal.status()[0]
    books.journal.close()
