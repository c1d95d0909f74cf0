"""How long sites are waited for: their leases, and the deadline of a round."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from pfl_common.spec.run import Kind, Task
from pfl_server.run.training import Training
from pfl_server.sites.assignment import Prepare
from tests.server.support.federation import ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK


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
