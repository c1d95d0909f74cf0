"""One attempt at a round: who is asked, who is counted and who is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common.learning.method import Arrivals, Averaging, Closed
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Kind, Task
from pfl_common.tensors.state import State, flat
from pfl_server.run.training import Training
from pfl_server.sites.assignment import Prepare, SiteLost
from pfl_server.store.tallies import PlainTally
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, expected, last_state, play, rounds, trained


def test_sites_that_do_not_train_measure(tmp_path: Path) -> None:
    """Outside the cohort a site gets the round's model to evaluate; its report is in the round's sum."""
    spec = build_spec(participation=Participation(fixed=("b",)), rounds=3, evaluate_every=2)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)

    async def run() -> None:
        both = asyncio.Event()
        count = 0

        class Patient(ScriptedFleet):
            """Trains only when the others have measured, so that their reports are there in time."""

            async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
                nonlocal count
                if task.kind is Kind.TRAIN and task.round % 2:
                    await both.wait()
                    both.clear()
                done = await super().ask(client, task, prepare)
                if task.kind is Kind.EVALUATE:
                    count += 1
                    if count % 2 == 0:
                        both.set()
                return done

        nonlocal fleet
        fleet = Patient(books)
        await Training(books, fleet, tick=TICK).run()

    asyncio.run(run())
    asked = [(site, task.round) for site, task in fleet.asked if task.kind is Kind.EVALUATE]
    assert [("a", 1), ("c", 1), ("a", 3), ("c", 3)] == asked
    scores = books.journal.scores()
    assert {1: 3.0, 2: 1.0, 3: 3.0} == {
        n: sum(scores[f"00000{n}-1-train"]["pre/test/combined"][5:]) for n in (1, 2, 3)
    }
    books.journal.close()


@pytest.mark.parametrize("fate", ["left", "silent", "refused:not_finite"])
def test_a_lost_site(tmp_path: Path, fate: str) -> None:
    """The others close the round; the loss is in the book with its reason; the site is asked again."""
    spec = build_spec()
    books, fleet, training = play(tmp_path, spec, {("b", 1, 1): fate})
    state = expected(spec, books.first, ["a", "c"], 1)
    assert torch.equal(flat(expected(spec, state, ["a", "b", "c"], 2)), flat(last_state(tmp_path, spec)))
    first, second = rounds(tmp_path, spec)
    reason = "lease" if fate == "silent" else fate
    assert (["a", "c"], {"b": reason}) == (first["counted"], first["losses"])
    assert (["a", "b", "c"], {}) == (second["counted"], second["losses"])
    assert {(reason.partition(":")[0], "called"): 1} == training.watch.losses
    assert ("b", 2, 1) in trained(fleet)


def test_drawn_drops(tmp_path: Path) -> None:
    """Sites drawn to drop out are told so and are not counted; the quorum does not expect them."""
    spec = build_spec(participation=Participation(drop=0.4), rounds=6, quorum=1.0)
    _, fleet, training = play(tmp_path, spec)
    found = rounds(tmp_path, spec)
    drops = {r["round"]: set(r["drops"]) for r in found}
    assert 0 < sum(map(len, drops.values())) < 18
    assert all(r["losses"] == dict.fromkeys(r["drops"], "dropped") for r in found)
    assert all(set(r["counted"]) == set("abc") - drops[r["round"]] for r in found)
    told = {(site, task.round) for site, task in fleet.asked if task.drop}
    assert {(site, number) for number, names in drops.items() for site in names} == told
    assert {"committed": 6} == training.watch.outcomes


class NeverCloses(Averaging):
    """A server half that cannot close a round."""

    def close(self, state: State, arrivals: Arrivals, task: Task) -> Closed:
        raise AssertionError("nothing was counted: there is nothing to close")


def test_a_round_without_updates_changes_nothing(tmp_path: Path) -> None:
    """All were drawn to drop out: the round is committed, no method is asked to make something of nothing."""
    spec = build_spec(participation=Participation(drop=1.0))
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    asyncio.run(Training(replace(books, half=NeverCloses(books.half.config, spec)), fleet, tick=TICK).run())
    books.journal.close()
    assert torch.equal(flat(books.first), flat(last_state(tmp_path, spec)))
    assert [[], []] == [r["counted"] for r in rounds(tmp_path, spec)]


def test_the_reason_of_a_loss_is_one_word() -> None:
    """Errors of sites carry only their reason."""
    assert "lease" == SiteLost("lease").reason


def test_each_attempt_lets_go_of_its_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed or abandoned, it is over before the next one begins: no key of its updates waits longer."""
    close, open_ones, seen = PlainTally.close, PlainTally.__init__, []

    def begin(tally: PlainTally, *words: object) -> None:
        seen.append("begin")
        open_ones(tally, *words)

    monkeypatch.setattr(PlainTally, "__init__", begin)
    monkeypatch.setattr(PlainTally, "close", lambda tally: (seen.append("close"), close(tally)))
    play(tmp_path, build_spec(), {("a", 1, 1): "left", ("b", 1, 1): "disk_full"})
    assert [*3 * ["begin", "close"], "begin"] == seen, "one abandoned, two committed; the last one finishes"
