"""When an attempt begins, when a round is tried again, and when the run is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from pfl_common.errors import RunFailed
from pfl_common.spec.participation import Participation
from pfl_common.tensors.state import flat
from pfl_server.decisions import sampling
from pfl_server.run import round_retries
from pfl_server.run.round_retries import ATTEMPTS
from pfl_server.run.training import Training
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, expected, last_state, play, rounds


def test_an_abandoned_attempt(tmp_path: Path) -> None:
    """Below the quorum nothing is counted, and the round is tried again under a new attempt number."""
    spec = build_spec()
    script = {("a", 1, 1): "left", ("b", 1, 1): "disk_full"}
    books, _, training = play(tmp_path, spec, script)
    assert torch.equal(
        flat(expected(spec, expected(spec, books.first, ["a", "b", "c"], 1), ["a", "b", "c"], 2)),
        flat(last_state(tmp_path, spec)),
    )
    assert [("abandoned", 1), ("committed", 2), ("committed", 1)] == [
        (r["status"], r["attempt"]) for r in rounds(tmp_path, spec)
    ]
    assert "1 of 2 needed updates; lost: a (left), b (disk_full)" == rounds(tmp_path, spec)[0]["reason"]
    assert {"abandoned": 1, "committed": 2} == training.watch.outcomes


def test_a_round_that_never_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After many attempts the run is given up in words, and the sites are told; nothing hangs for ever."""
    monkeypatch.setattr(round_retries, "TRYING_TICKS", 1)
    monkeypatch.setattr(round_retries, "LONGEST_PAUSE_TICKS", 2)
    spec = build_spec()
    script = {("a", 1, n): "policy" for n in range(1, ATTEMPTS + 1)}
    script |= {("b", *rest): "policy" for _, *rest in list(script)}
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books, script)
    training = Training(books, fleet, tick=TICK)
    with pytest.raises(RunFailed, match=f"round 1 .*{ATTEMPTS}"):
        asyncio.run(training.run())
    assert ("failed", "failed") == (fleet.over.status, training.status().status)
    assert {} == books.journal.committed()
    books.journal.close()


def test_nobody_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No site was heard for the time of a round: an end in words, and no attempt was burnt. However often it was looked
    who is here, a cohort was drawn once.
    """
    drawn, draw = [], sampling.draw
    monkeypatch.setattr(sampling, "draw", lambda *given, **named: (drawn.append(1), draw(*given, **named))[1])
    spec = build_spec(round_seconds=0.02)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    fleet.here = set()
    with pytest.raises(RunFailed, match="no site of the cohort was heard"):
        asyncio.run(Training(books, fleet, tick=TICK).run())
    assert [] == books.journal.rounds()
    books.journal.close()
    assert [1] == drawn


def test_named_sites_that_are_away_are_waited_for(tmp_path: Path) -> None:
    """Drawn from those that are here, the list names nobody for a while: no reason to end the run."""
    spec = build_spec(rounds=1, participation=Participation(fixed=("b",)), candidates="present")
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    fleet.here = {"a", "c"}

    async def come() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        for _ in range(50):
            await asyncio.sleep(0)
        fleet.here.add("b")
        await training

    asyncio.run(come())
    assert [("committed", ["b"])] == [(row["status"], row["counted"]) for row in books.journal.rounds()]
    books.journal.close()


def test_a_cohort_that_is_away_burns_no_attempts(tmp_path: Path) -> None:
    """The only site drawn is away while others are here: the round opens once, when it has come."""
    spec = build_spec(rounds=1, participation=Participation(fixed=("b",)))
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    fleet.here = {"a", "c"}

    async def come() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        for _ in range(50):
            await asyncio.sleep(0)
        assert [] == books.journal.rounds()
        fleet.here.add("b")
        await training

    asyncio.run(come())
    assert [(1, "committed", ["b"])] == [
        (found["attempt"], found["status"], found["counted"]) for found in books.journal.rounds()
    ]
    books.journal.close()


def test_candidates_are_journaled(tmp_path: Path) -> None:
    """The draw is among all registered sites, or among those present, as the run says."""
    for rule in ("roster", "present"):
        spec = build_spec(candidates=rule, rounds=1)
        books = open_run(tmp_path / rule, spec)
        fleet = ScriptedFleet(books)
        fleet.here = {"a", "c"}
        asyncio.run(Training(books, fleet, tick=TICK).run())
        wanted = ["a", "b", "c"] if rule == "roster" else ["a", "c"]
        assert wanted == books.journal.rounds()[0]["candidates"]
        books.journal.close()
