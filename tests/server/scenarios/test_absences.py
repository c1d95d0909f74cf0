"""Who is away and for how long: sites that come back, a coordinator that slept, a run that is not there any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pfl_common.errors import RunFailed
from pfl_common.spec.run import Kind
from pfl_server.run.training import Training
from pfl_server.sites.gathering import Reception
from pfl_server.store.shelf import Shelf
from tests.server.support.federation import DESCRIPTION, ScriptedFleet, build_spec, open_run
from tests.server.support.lives import TICK, play
from tests.server.support.scene import Scene, refusal


@pytest.fixture
async def scene(tmp_path: Path):
    """A fleet whose clock stands still."""
    place = Scene(tmp_path, build_spec())
    yield place
    await place.close()


async def test_a_site_of_another_run_is_sent_to_join() -> None:
    """While sites are gathered, one that asks for work is not kept waiting: both would wait for ever."""
    desk = Reception("fedavg")
    early = asyncio.create_task(refusal(lambda: desk.next_task("a", (), wait=10)))
    await asyncio.sleep(0)
    gathering = asyncio.create_task(desk.gather(2))
    assert "not_joined" == await early
    assert "not_joined" == await refusal(lambda: desk.next_task("a", (), wait=10))
    joining = [asyncio.create_task(desk.join(site, DESCRIPTION)) for site in ("a", "b")]
    assert {"a", "b"} == (await gathering).keys()
    desk.drain()
    await asyncio.gather(*joining)


async def test_a_killed_site_begins_again_at_nothing(scene: Scene) -> None:
    """Its second life's progress renews the lease long before it has reached the first one's."""
    scene.ask()
    await scene.take()
    assert scene.fleet.heartbeat("a", "000001-1-train", 1000)
    scene.fleet.clock += 10
    await scene.take()
    scene.fleet.clock += 10
    assert scene.fleet.heartbeat("a", "000001-1-train", 5)
    scene.fleet.clock += 10
    assert not scene.fleet.expired("a")
    scene.fleet.clock += 10
    assert scene.fleet.expired("a")


def test_no_attempt_is_burnt_while_too_few_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an abandoned attempt the next one waits until the quorum can be reached."""
    books = open_run(tmp_path, build_spec(rounds=1))
    fleet = ScriptedFleet(books)
    fleet.here = {"a"}
    abandoned, abandon = asyncio.Event(), books.journal.abandon

    class Heard:
        """Says when an attempt has been abandoned."""

        async def soon(self, *words: object, **named: object) -> None:
            await abandon.soon(*words, **named)
            abandoned.set()

    monkeypatch.setattr(books.journal, "abandon", Heard())

    async def come_back() -> None:
        training = asyncio.create_task(Training(books, fleet, tick=TICK).run())
        await abandoned.wait()
        for _ in range(20):
            await asyncio.sleep(TICK)
        assert 1 == len(books.journal.rounds())
        fleet.here = {"a", "b"}
        await training

    asyncio.run(come_back())
    assert [("abandoned", []), ("committed", ["a", "b"])] == [
        (found["status"], found["counted"]) for found in books.journal.rounds()
    ]
    books.journal.close()


def test_too_few_for_too_long(tmp_path: Path) -> None:
    """A quorum that does not come back within a round's time ends the run in words."""
    books = open_run(tmp_path, build_spec(rounds=1, round_seconds=0.05))
    fleet = ScriptedFleet(books)
    fleet.here = {"a"}
    with pytest.raises(RunFailed, match="too few"):
        asyncio.run(Training(books, fleet, tick=TICK).run())
    assert 1 == len(books.journal.rounds())
    books.journal.close()


class SleepyLoop(asyncio.SelectorEventLoop):
    """A loop on a machine that can fall asleep: its clock leaps."""

    slept = 0.0

    def time(self) -> float:
        return super().time() + self.slept


def test_a_coordinator_that_slept_judges_nobody_at_once(tmp_path: Path) -> None:
    """When the machine wakes up every lease has ended; the sites get a lease's time to be heard again."""
    books = open_run(tmp_path, build_spec(rounds=1, lease_seconds=0.2))
    woke, gave_up = [], []

    class Sleepy(ScriptedFleet):
        """Site b is silent; the coordinator falls asleep as soon as it looks after it for the first time."""

        def expired(self, client: str) -> bool:
            if not woke:
                woke.append(0.0)
                asyncio.get_running_loop().call_soon(self.sleep)
                return False
            return super().expired(client)

        def sleep(self) -> None:
            asyncio.get_running_loop().slept = 100.0
            woke[0] = asyncio.get_running_loop().time()

        def give_up(self, client: str, reason: str) -> None:
            gave_up.append(asyncio.get_running_loop().time() - woke[0])
            super().give_up(client, reason)

    fleet = Sleepy(books, {("b", 1, 1): "silent"})
    fleet.on_ask = lambda site, task: fleet.script.clear() if task.kind is Kind.FINISH else None
    with asyncio.Runner(loop_factory=SleepyLoop) as runner:
        runner.run(Training(books, fleet, tick=TICK).run())
    assert {"b": "lease"} == books.journal.rounds()[0]["losses"]
    assert gave_up[0] >= 0.2
    books.journal.close()


def test_a_finished_run_keeps_its_last_sum(tmp_path: Path) -> None:
    """Served once more, one site that comes again does not stand for all of them."""
    spec = build_spec()
    play(tmp_path, spec)
    books = open_run(tmp_path, spec)
    before = books.journal.scores()["000002-1-finish"]
    fleet = ScriptedFleet(books)
    fleet.here = {"b"}
    asyncio.run(Training(books, fleet, tick=TICK).run())
    assert before == books.journal.scores()["000002-1-finish"]
    assert 3.0 == sum(before["pre/test/combined"][5:])
    books.journal.close()


async def test_a_download_that_could_not_be_written_is_tried_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full for a moment does not cost the round."""
    put, full = Shelf.put, [OSError("no space left on device")]

    def put_when_there_is_room(*what: object, **more: object) -> object:
        if full:
            raise full.pop()
        return put(*what, **more)

    monkeypatch.setattr(Shelf, "put", put_when_there_is_room)
    scene.ask()
    with pytest.raises(OSError, match="no space"):
        await scene.take()
    assert 1 == (await scene.take()).task.round
