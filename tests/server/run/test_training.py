"""The story of a run, with sites that answer by a script: what is asked, counted, lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pfl_common.errors import RunFailed
from pfl_common.evaluation import add
from pfl_common.learning.method import Arrivals, Averaging, Closed
from pfl_common.spec.messages import Over
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors.state import State, flat
from pfl_common.tensors.summing import Sum
from pfl_common.tensors.update import Weighted
from pfl_server.run.training import ATTEMPTS, Training
from pfl_server.sites.assignment import Prepare, SiteLost
from tests.server.support.federation import ScriptedFleet, build_spec, make_update, measure, open_run
from tests.server.support.lives import TICK, last_state, play, rounds, trained


def expected(spec: RunSpec, first: State, counted: list[str], number: int) -> State:
    """A round of averaging as its definition says."""
    total = Sum()
    for site in sorted(counted):
        up = make_update(spec, site, number, around=first)
        total.add({name: Weighted(up[f"sum.{name}"], up[f"weight.{name}"]) for name in first})
    return total.mean(first)


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


def test_updates_of_an_abandoned_attempt_make_room(tmp_path: Path) -> None:
    """They count nowhere: with large models the next attempt may need their place on the disk."""
    spec = build_spec()
    books = open_run(tmp_path, spec)
    held = []

    class Looking(ScriptedFleet):
        """Writes down what lies in the spool when the second attempt is asked for."""

        async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
            if (task.kind, task.round, task.attempt) == (Kind.TRAIN, 1, 2):
                await training._sweeping
                held.append(books.spool.holds("000001-1-c"))
            return await super().ask(client, task, prepare)

    fleet = Looking(books, {("a", 1, 1): "left", ("b", 1, 1): "disk_full"})
    training = Training(books, fleet, tick=TICK)
    asyncio.run(training.run())
    assert [False] * 3 == held
    assert ("c", 1, 1) in trained(fleet)
    books.journal.close()


def test_a_round_that_never_succeeds(tmp_path: Path) -> None:
    """After many attempts the run is given up in words, and the sites are told; nothing hangs for ever."""
    spec = build_spec()
    script = {("a", 1, n): "policy" for n in range(1, ATTEMPTS + 1)}
    script |= {("b", *rest): "policy" for _, *rest in list(script)}
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books, script)
    training = Training(books, fleet, tick=TICK)
    with pytest.raises(RunFailed, match="round 1 was abandoned 20 times"):
        asyncio.run(training.run())
    assert ("failed", "failed") == (fleet.over.status, training.status().status)
    assert {} == books.journal.committed()
    books.journal.close()


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


def test_a_quorum_of_all_waits(tmp_path: Path) -> None:
    """With quorum 1 a silent site is waited for: its lease does not end the round, its update does."""
    spec = build_spec(quorum=1.0)
    books = open_run(tmp_path, spec)

    class Slow(ScriptedFleet):
        """Site b is silent for twenty looks at its lease, then delivers."""

        looks = 0

        def expired(self, client: str) -> bool:
            if client != "b" or self.looks > 20:
                return False
            self.looks += 1
            if self.looks == 20:
                self.script.clear()
                self._silent["b"].set_result("")
            return True

        async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
            done = await super().ask(client, task, prepare)
            return done or await super().ask(client, task, prepare)

    fleet = Slow(books, {("b", 1, 1): "silent"})
    asyncio.run(Training(books, fleet, tick=TICK).run())
    assert ["a", "b", "c"] == books.journal.rounds()[0]["counted"]
    assert 20 <= fleet.looks
    books.journal.close()


class ClockLoop(asyncio.SelectorEventLoop):
    """A loop whose clock a test can put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class NearTheDeadline(ScriptedFleet):
    """Nobody's lease ends; once the others have delivered, the round's hour is over."""

    def expired(self, client: str) -> bool:
        if len(self.books.journal.receipts(1, 1)) == 2:
            asyncio.get_running_loop().ahead = 3600.0
        return False


def test_the_deadline(tmp_path: Path) -> None:
    """Nobody's lease ends, but the round's time does: who is silent then is lost."""
    books = open_run(tmp_path, build_spec(rounds=1))
    fleet = NearTheDeadline(books, {("b", 1, 1): "silent"})
    fleet.on_ask = lambda site, task: fleet.script.clear() if task.kind is Kind.FINISH else None
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(Training(books, fleet, tick=TICK).run())
    assert {"b": "deadline"} == books.journal.rounds()[0]["losses"]
    books.journal.close()


def test_a_receipt_in_the_moment_of_the_deadline_is_counted(tmp_path: Path) -> None:
    """The fleet has settled the task but training has not heard of it yet when the time is up."""
    books = open_run(tmp_path, build_spec(rounds=1))

    class LastMoment(NearTheDeadline):
        """Site b delivers exactly when it is given up."""

        digest = ""

        def give_up(self, client: str, reason: str) -> None:
            task = next(task for site, task in self.asked if site == client)
            self._silent.pop(client).set_result(self._train(client, self.digest, task))

        async def ask(self, client: str, task: Task, prepare: Prepare) -> str:
            self.digest = (await prepare(replace(task, since=0))).blob.digest
            return await super().ask(client, task, prepare)

    fleet = LastMoment(books, {("b", 1, 1): "silent"})
    fleet.on_ask = lambda site, task: fleet.script.clear() if task.kind is Kind.FINISH else None
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(Training(books, fleet, tick=TICK).run())
    found = books.journal.rounds()[0]
    assert (["a", "b", "c"], {}) == (found["counted"], found["losses"])
    assert {"a", "b", "c"} == books.journal.receipts(1, 1).keys()
    books.journal.close()


def test_nobody_is_there(tmp_path: Path) -> None:
    """No site was heard for the time of a round: an end in words, and no attempt was burnt."""
    spec = build_spec(round_seconds=0.02)
    books = open_run(tmp_path, spec)
    fleet = ScriptedFleet(books)
    fleet.here = set()
    with pytest.raises(RunFailed, match="no site of the cohort was heard"):
        asyncio.run(Training(books, fleet, tick=TICK).run())
    assert [] == books.journal.rounds()
    books.journal.close()


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


def test_a_failed_run_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    """The journal keeps the reason; once somebody is there, the same run goes on to its end."""
    books = open_run(tmp_path, build_spec(rounds=1, round_seconds=0.02))
    fleet = ScriptedFleet(books)
    fleet.here = set()
    with pytest.raises(RunFailed):
        asyncio.run(Training(books, fleet, tick=TICK).run())
    status, words = books.journal.status()
    assert "failed" == status
    assert "no site of the cohort" in words
    fleet.here = set(fleet.sites)
    asyncio.run(Training(books, fleet, tick=TICK).run())
    assert "finished" == books.journal.status()[0]
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


def test_swept_to_what_is_needed(tmp_path: Path) -> None:
    """After many rounds the spool holds the last round's updates, and the shelf few files."""
    spec = build_spec(rounds=6)
    play(tmp_path, spec)
    assert {f"000006-1-{site}.{end}" for site in "abc" for end in ("raw", "json")} == {
        path.name for path in (tmp_path / "spool").iterdir()
    }
    assert 4 >= len([path for path in (tmp_path / "shelf").iterdir() if path.suffix != ".json"])


def test_the_reason_of_a_loss_is_one_word() -> None:
    """Errors of sites carry only their reason."""
    assert "lease" == SiteLost("lease").reason
