"""A look at all updates together leaves out the one that went too far, and the sum is as if it had never come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch

from pfl_common.tensors.state import State, flat
from pfl_server.run.training import Training
from tests.server.support import federation
from tests.server.support.federation import ScriptedFleet, build_spec, make_update, open_run
from tests.server.support.lives import TICK, expected, last_state, play, rounds


def far(site: str, *numbers: int, factor: float = 1e5) -> object:
    """Updates as ever, but those of one site in these rounds go far."""

    def make(spec: object, *words: int | str, around: State | None = None) -> State:
        up = make_update(spec, *words, around=around)
        if words[0] != site or words[1] not in numbers:
            return up
        sent = (around or State()).within("sum")
        return up | {name: sent[name] + factor * (up[name] - sent[name]) for name in sent}

    return make


def test_one_that_went_too_far_is_as_one_that_never_came(tmp_path: Path, monkeypatch: object) -> None:
    """To the bit; it is lost with its reason, which the operator reads."""
    spec = build_spec(rounds=2)
    monkeypatch.setattr(federation, "make_update", far("b", 1))
    books, _, training = play(tmp_path, spec)
    first = expected(spec, books.first, ["a", "c"], 1)
    assert torch.equal(flat(expected(spec, first, ["a", "b", "c"], 2)), flat(last_state(tmp_path, spec)))
    row = rounds(tmp_path, spec)[0]
    assert (["a", "c"], {"b": "refused:change"}) == (row["counted"], row["losses"])
    (told,) = [e.words for e in training._observer._events.newest() if "--change-factor" in e.words]
    assert "b went more than 100 times" in told


def test_two_sites_are_judged_by_the_rounds_before(tmp_path: Path, monkeypatch: object) -> None:
    """Also by a coordinator that was started again, whose memory is the journal."""
    spec = build_spec(sites=("a", "b"), rounds=5, quorum=0.5)
    monkeypatch.setattr(federation, "make_update", far("b", 5))
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)

    async def live() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        fleet.on_ask = lambda site, task: training.cancel() if task.round == 5 else None
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(live())
    assert [{"a", "b"}] * 4 == [set(changes) for changes in books.journal.changes()]
    books.journal.close()
    play(tmp_path, spec)
    assert {"b": "refused:change"} == rounds(tmp_path, spec)[4]["losses"]


def test_updates_from_before_a_restart_are_measured_again(tmp_path: Path, monkeypatch: object) -> None:
    """The far one lay in the spool, with its receipt, when the coordinator was killed."""
    spec = build_spec(rounds=1)
    monkeypatch.setattr(federation, "make_update", far("a", 1))
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books, {("c", 1, 1): "silent"})

    async def live() -> None:
        training, train, done = asyncio.create_task(Training(books, fleet, tick=TICK).run()), fleet._train, []

        def kill_after_two(*words: object) -> str:
            done.append(train(*words))
            if len(done) == 2:
                training.cancel()
            return done[-1]

        fleet._train = kill_after_two
        await asyncio.gather(training, return_exceptions=True)

    asyncio.run(live())
    books.journal.close()
    books, _, _ = play(tmp_path, spec)
    assert torch.equal(flat(expected(spec, books.first, ["b", "c"], 1)), flat(last_state(tmp_path, spec)))


def test_it_can_be_switched_off(tmp_path: Path, monkeypatch: object) -> None:
    """With a factor of 0 the far one counts, and nothing is measured."""
    spec = build_spec(rounds=1, change_factor=0.0)
    monkeypatch.setattr(federation, "make_update", far("b", 1))
    play(tmp_path, spec)
    assert ["a", "b", "c"] == rounds(tmp_path, spec)[0]["counted"]
    books = open_run(tmp_path, spec)
    assert [] == books.journal.changes()
    books.journal.close()
