"""The fleet between training and sites: errands handed over, updates taken once, silence noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.messages import Assignment, Blob, Joined, Mark, Offer, Over, Receipt
from pfl_common.run import Description, Kind, RunSpec, Task
from pfl_common.scores import vector
from pfl_common.tensors import State
from pfl_server.books import Books
from pfl_server.desk import Incoming
from pfl_server.downloads import Downloads
from pfl_server.errands import SiteLost
from pfl_server.fleet import Fleet
from pfl_server.sampling import Draw
from tests.server.federation import DESCRIPTION, build_header, build_spec, make_update, open_run, write_parcel

TASK = Task(Kind.TRAIN, 1, 2)
EVALUATE = Task(Kind.EVALUATE, 1, 2)
SCORES = {"pre/test/combined": vector(3, 4, 0.5)}


class ClockFleet(Fleet):
    """A fleet whose clock stands still until a test moves it."""

    clock = 100.0

    def _now(self) -> float:
        return self.clock


class Scene:
    """A fleet with its books, and the sites' side of each call."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        self.folder, self.spec = folder, spec
        self.jobs: list[asyncio.Task[str]] = []
        self.open()

    def open(self) -> None:
        """Start the coordinator's side, for the first time or once more."""
        self.books: Books = open_run(self.folder, self.spec)
        books = self.books
        self.fleet = ClockFleet(
            self.spec, journal=books.journal, spool=books.spool, shelf=books.shelf, init=books.init
        )
        self.downloads = Downloads(self.spec, books.half, per_client=False, shelf=books.shelf)

    async def restart(self) -> None:
        """Kill the coordinator: whatever was in memory is gone."""
        await self.close()
        self.open()

    async def close(self) -> None:
        for job in self.jobs:
            job.cancel()
        await asyncio.gather(*self.jobs, return_exceptions=True)
        self.jobs.clear()
        self.books.journal.close()

    def ask(self, site: str = "a", task: Task = TASK) -> asyncio.Task[str]:
        """What training does: give a site a task."""

        async def prepare(asked: Task) -> Assignment:
            return await self.downloads.assignment(self.books.first, site, asked)

        self.jobs.append(asyncio.create_task(self.fleet.ask(site, task, prepare)))
        return self.jobs[-1]

    async def take(self, site: str = "a", marks: tuple[Mark, ...] = ()) -> Assignment:
        """What a site does: ask for work, and get some."""
        assignment = await self.fleet.next_task(site, marks, wait=10)
        assert isinstance(assignment, Assignment)
        return assignment

    def prepare_offer(self, site: str = "a", task: Task = TASK, *words: str) -> tuple[Offer, bytes]:
        """A site's update, ready to be offered."""
        file = self.folder / f"outbox-{site}"
        groups = write_parcel(file, self.spec, make_update(self.spec, site, *words))
        raw = file.read_bytes()
        header = build_header(self.spec, site, task, groups)
        return Offer(task.key, header, Blob(sha256(raw).hexdigest(), len(raw))), raw

    async def send(self, site: str, offer: Offer, raw: bytes) -> Receipt:
        """Offer, store all bytes, get the receipt."""
        incoming = await self.fleet.offer(site, offer)
        assert isinstance(incoming, Incoming)
        with incoming.path.open("r+b") as file:
            file.seek(incoming.offset)
            file.write(raw[incoming.offset :])
        return await self.fleet.stored(site, offer.key)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path, build_spec(lease_seconds=15.0))
    yield scene
    await scene.close()


async def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        await call()
    return refused.value.code


async def test_a_task_and_its_update(scene: Scene) -> None:
    """A site that waits gets the errand; its update ends it and is in the spool and in the journal."""
    waiting = asyncio.create_task(scene.take())
    asked = scene.ask()
    assignment = await waiting
    assert (replace(TASK, since=0), "working (train 1)") == (
        assignment.task,
        scene.fleet.status().sites[0].doing,
    )
    offer, raw = scene.prepare_offer()
    receipt = await scene.send("a", offer, raw)
    assert Receipt("run-1", TASK.key, "a", offer.blob.digest) == receipt
    name = await asked
    assert {"a": (offer.blob.digest, name)} == scene.books.journal.receipts(1, 1)
    assert raw == scene.books.spool.open(name).path.read_bytes()
    assert [] == list((scene.folder / "incoming").iterdir())


async def test_nothing_to_do_yet(scene: Scene) -> None:
    """Without work the answer is "ask again"; the site counts as present."""
    scene.fleet.clock += 60
    assert None is await scene.fleet.next_task("b", (), wait=0)
    assert ("b",) == scene.fleet.present()


async def test_the_same_errand_again(scene: Scene) -> None:
    """A site that lost the answer, or was restarted, gets the same task and the same bytes."""
    scene.ask()
    first = await scene.take()
    assert first == await scene.take()


async def test_the_same_errand_after_the_coordinator_was_killed(scene: Scene) -> None:
    """The restarted coordinator asks the same, under the same key."""
    scene.ask()
    first = await scene.take()
    await scene.restart()
    scene.ask()
    again = await scene.take()
    assert (first.key, first.blob, first.header) == (again.key, again.blob, again.header)


async def test_an_update_received_before_a_restart_is_not_asked_for_again(scene: Scene) -> None:
    """The journal answers for it; the site that missed its receipt gets the same one."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    receipt = await scene.send("a", offer, raw)
    name = await asked
    await scene.restart()
    assert name == await scene.ask()
    assert receipt == await scene.fleet.offer("a", offer)


async def test_an_update_torn_by_a_power_loss_is_asked_for_again(scene: Scene) -> None:
    """The spool is not synced: a receipt whose bytes are gone is taken back, and they come again."""
    asked = scene.ask()
    offer, raw = scene.prepare_offer()
    await scene.take()
    await scene.send("a", offer, raw)
    scene.books.spool.open(await asked).path.write_bytes(b"\0" * len(raw))
    await scene.restart()
    again = scene.ask()
    await scene.take()
    await scene.send("a", offer, raw)
    assert raw == scene.books.spool.open(await again).path.read_bytes()


async def test_since_is_the_last_committed_round_of_the_marks(scene: Scene) -> None:
    """What an abandoned attempt left in a vault does not count, what a committed one left does."""
    journal, draw = scene.books.journal, Draw(("a",), frozenset())
    journal.open_attempt(1, "a", draw)
    journal.abandon(1, 1, {}, "too few")
    journal.open_attempt(1, "a", draw)
    journal.commit(1, 2, ["a"], {})
    journal.open_attempt(2, "a", draw)
    scene.ask(task=Task(Kind.TRAIN, 2, 2))
    marks = {
        (): 0,
        (Mark(1, 1),): 0,
        (Mark(1, 2),): 1,
        (Mark(1, 1), Mark(1, 2)): 1,
        (Mark(1, 2), Mark(2, 1)): 1,
        (Mark(7, 1),): 0,
    }
    assert list(marks.values()) == [(await scene.take(marks=own)).task.since for own in marks]


@pytest.mark.parametrize("difference", [-1, 1, 1 << 40])
async def test_an_offer_of_the_wrong_size(scene: Scene, difference: int) -> None:
    """Refused before a byte is accepted: not even an empty file is made."""
    scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    wrong = replace(offer, blob=replace(offer.blob, size=offer.blob.size + difference))
    assert "size" == await refusal(lambda: scene.fleet.offer("a", wrong))
    assert [] == list((scene.folder / "incoming").iterdir())
    assert {"size": 1} == scene.fleet.refusals


@pytest.mark.parametrize(
    "change",
    [
        {"round": 2},
        {"attempt": 2},
        {"kind": Kind.EVALUATE},
        {"phase": "warmup"},
        {"sender": "b"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_header_of_another_task(scene: Scene, change: dict[str, object]) -> None:
    """A site cannot file its update under another round, attempt, task or name than it was asked for."""
    scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    wrong = replace(offer, header=replace(offer.header, **change))
    assert "header" == await refusal(lambda: scene.fleet.offer("a", wrong))


async def test_a_receipt_is_repeated(scene: Scene) -> None:
    """The same update offered again gets the same receipt; another one under the same key is refused."""
    scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    receipt = await scene.send("a", offer, raw)
    assert receipt == await scene.fleet.offer("a", offer)
    other, _ = scene.prepare_offer("a", TASK, "other numbers")
    assert "different" == await refusal(lambda: scene.fleet.offer("a", other))


async def test_an_upload_goes_on_where_it_stopped(scene: Scene) -> None:
    """A second offer of the same bytes says how many are here; one of other bytes begins at nothing."""
    scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    incoming = await scene.fleet.offer("a", offer)
    incoming.path.write_bytes(raw[:30])
    assert 30 == (await scene.fleet.offer("a", offer)).offset
    other, other_raw = scene.prepare_offer("a", TASK, "other numbers")
    assert 0 == (await scene.fleet.offer("a", other)).offset
    assert 1 == len(list((scene.folder / "incoming").iterdir())), "what was given up is not kept"
    assert other.blob.digest == (await scene.send("a", other, other_raw)).digest


async def test_a_partial_upload_survives_the_coordinator(scene: Scene) -> None:
    """After a restart the same offer goes on where it stopped."""
    scene.ask()
    offer, raw = scene.prepare_offer()
    await scene.take()
    (await scene.fleet.offer("a", offer)).path.write_bytes(raw[:30])
    await scene.restart()
    scene.ask()
    await scene.take()
    assert 30 == (await scene.fleet.offer("a", offer)).offset


async def test_bytes_that_are_not_those_offered(scene: Scene) -> None:
    """A changed byte refuses the upload, frees its file and loses the site its round."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    assert "digest" == await refusal(lambda: scene.send("a", offer, raw[:-1] + b"\7"))
    with pytest.raises(SiteLost, match="refused:digest"):
        await asked
    assert ({}, []) == (scene.books.journal.receipts(1, 1), list((scene.folder / "incoming").iterdir()))


async def test_an_update_that_diverged(scene: Scene) -> None:
    """NaN is refused with its own code, which is the reason of the loss."""
    asked = scene.ask()
    await scene.take()
    update = make_update(scene.spec, "a")
    file = scene.folder / "outbox"
    write_parcel(file, scene.spec, update | {"sum.head.bias": torch.full((2,), float("nan"))})
    raw = file.read_bytes()
    offer = Offer(TASK.key, build_header(scene.spec, "a", TASK), Blob(sha256(raw).hexdigest(), len(raw)))
    assert "not_finite" == await refusal(lambda: scene.send("a", offer, raw))
    with pytest.raises(SiteLost, match="refused:not_finite"):
        await asked


async def test_stored_without_an_offer(scene: Scene) -> None:
    """Nothing is taken for which no room was made."""
    scene.ask()
    await scene.take()
    assert "not_offered" == await refusal(lambda: scene.fleet.stored("a", TASK.key))


async def test_who_was_given_up_gets_no_receipt(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up while its bytes were being verified: refused as late, so none is promised and lost."""
    asked = scene.ask()
    await scene.take()
    verify = scene.fleet._verify
    loop = asyncio.get_running_loop()

    def slow(*words: object) -> str:
        # From the worker thread back into the loop, as the deadline would come in the middle of verifying.
        asyncio.run_coroutine_threadsafe(give_up(), loop).result(timeout=10)
        return verify(*words)

    async def give_up() -> None:
        scene.fleet.give_up("a", "deadline")

    monkeypatch.setattr(scene.fleet, "_verify", slow)
    offer, raw = scene.prepare_offer()
    assert "late" == await refusal(lambda: scene.send("a", offer, raw))
    with pytest.raises(SiteLost, match="deadline"):
        await asked
    assert {} == scene.books.journal.receipts(1, 1)


async def test_whoever_has_a_receipt_cannot_be_given_up(scene: Scene) -> None:
    """The receipt went out in the moment of the deadline: the update is counted."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    await scene.send("a", offer, raw)
    scene.fleet.give_up("a", "deadline")
    assert "000001-1-a" == await asked


async def test_verifying_is_not_silence(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the coordinator itself takes, no lease ends meanwhile."""
    scene.ask()
    await scene.take()
    verify, seen = scene.fleet._verify, []

    def slow(*words: object) -> str:
        scene.fleet.clock += 1000
        seen.append(scene.fleet.expired("a"))
        return verify(*words)

    monkeypatch.setattr(scene.fleet, "_verify", slow)
    await scene.send("a", *scene.prepare_offer())
    assert [False] == seen


async def test_a_report_completes_an_evaluation(scene: Scene) -> None:
    """Tasks without an upload end with their report."""
    asked = scene.ask(task=EVALUATE)
    await scene.take()
    await scene.fleet.report("a", EVALUATE.key, SCORES)
    assert "" == await asked
    assert [SCORES] == scene.books.journal.reports(EVALUATE.key)


async def test_a_report_does_not_complete_training(scene: Scene) -> None:
    """It is taken, and the update is still awaited."""
    asked = scene.ask()
    await scene.take()
    await scene.fleet.report("a", TASK.key, SCORES)
    await scene.fleet.report("a", TASK.key, SCORES)
    assert not asked.done()
    assert [SCORES] == scene.books.journal.reports(TASK.key)


async def test_a_made_up_report(scene: Scene) -> None:
    """Numbers that no evaluation gives are refused and not summed."""
    scene.ask()
    await scene.take()
    made_up = {"pre/test/combined": [0.0] * 106}
    assert "scores" == await refusal(lambda: scene.fleet.report("a", TASK.key, made_up))
    assert [] == scene.books.journal.reports(TASK.key)


@pytest.mark.parametrize("reason", ["dropped", "disk_full"])
async def test_a_declined_task_is_lost(scene: Scene, reason: str) -> None:
    """The reason is the one the site gave."""
    asked = scene.ask()
    await scene.take()
    await scene.fleet.decline("a", TASK.key, reason, "no room")
    with pytest.raises(SiteLost, match=reason):
        await asked


async def test_a_reason_that_is_none(scene: Scene) -> None:
    """Reasons become labels of metrics: only those of the list are taken."""
    asked = scene.ask()
    await scene.take()
    assert "reason" == await refusal(lambda: scene.fleet.decline("a", TASK.key, "bored", ""))
    assert not asked.done()


async def test_leaving_loses_the_errand_at_once(scene: Scene) -> None:
    """Nobody waits for the lease of a site that said goodbye."""
    asked = scene.ask()
    await scene.take()
    await scene.fleet.leave("a")
    with pytest.raises(SiteLost, match="left"):
        await asked
    assert ("b", "c") == scene.fleet.present()


async def test_only_progress_renews_a_lease(scene: Scene) -> None:
    """Heartbeats that say the same number again are those of a site that hangs."""
    scene.ask()
    await scene.take()
    heard = []
    for progress in (0, 10, 10, 10):
        scene.fleet.clock += 10
        assert scene.fleet.heartbeat("a", TASK.key, progress)
        heard.append(scene.fleet.expired("a"))
    assert [False, False, False, True] == heard
    assert scene.fleet.heartbeat("a", TASK.key, 11)
    assert not scene.fleet.expired("a")


async def test_bytes_that_come_in_are_progress(scene: Scene) -> None:
    """An upload over a slow line renews the lease as long as it grows."""
    scene.ask()
    await scene.take()
    incoming = await scene.fleet.offer("a", scene.prepare_offer()[0])
    heard = []
    for size in (1, 2, 2):
        incoming.path.write_bytes(b"x" * size)
        scene.fleet.clock += 10
        heard.append(scene.fleet.expired("a"))
    assert [False, False, False] == heard
    scene.fleet.clock += 6
    assert scene.fleet.expired("a")


async def test_a_site_that_is_away_from_the_start(scene: Scene) -> None:
    """Not heard for a lease when it is asked, it is silent at once; one that is here has a lease's time."""
    scene.fleet.clock += 16
    assert None is await scene.fleet.next_task("b", (), wait=0)
    scene.ask("a")
    scene.ask("b")
    await asyncio.sleep(0)
    assert [True, False, False] == [scene.fleet.expired(site) for site in "abc"]


async def test_after_a_restart_everyone_has_time_to_come_back(scene: Scene) -> None:
    """Nobody has been heard yet, and nobody is given up for that."""
    scene.ask("a")
    await asyncio.sleep(0)
    scene.fleet.clock += 15
    assert not scene.fleet.expired("a")
    assert ("a", "b", "c") == scene.fleet.present()
    scene.fleet.clock += 1
    assert scene.fleet.expired("a")


async def test_a_late_joiner(scene: Scene) -> None:
    """It gets the run as it is and the first model, and from then on belongs to the roster."""
    joined = await scene.fleet.join("d", Description((2,), ("dog",), kind="array"))
    assert Joined(scene.spec.to_json(), scene.books.init) == joined
    assert ("a", "b", "c", "d") == scene.fleet.roster() == scene.fleet.present()
    assert {"d"} == scene.books.journal.sites().keys() - set("abc")
    scene.ask("d")
    assert 0 == (await scene.take("d")).task.since


async def test_a_late_joiner_that_does_not_fit(scene: Scene) -> None:
    """Its data cannot be used here: refused, and not in the book."""
    stranger = Description((2,), ("wolf",), kind="array")
    assert "classes" == await refusal(lambda: scene.fleet.join("d", stranger))
    assert ("a", "b", "c") == scene.fleet.roster()


@pytest.mark.parametrize("key", ["000001-2-train", "000002-1-train", "000001-1-evaluate", "", "../../x"])
async def test_a_key_nobody_waits_for(scene: Scene, key: str) -> None:
    """Only the errand of this site is answered, by its own key."""
    scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    calls = [
        lambda: scene.fleet.stored("a", key),
        lambda: scene.fleet.report("a", key, SCORES),
        lambda: scene.fleet.decline("a", key, "dropped", ""),
        lambda: scene.fleet.offer("a", replace(offer, key=key)),
    ]
    assert ["late"] * 4 == [await refusal(call) for call in calls]
    assert not scene.fleet.heartbeat("a", key, 99)


async def test_a_site_nobody_knows(scene: Scene) -> None:
    """Whoever has not joined is told to."""
    calls = [
        lambda: scene.fleet.next_task("z", (), wait=0),
        lambda: scene.fleet.stored("z", TASK.key),
        lambda: scene.fleet.leave("z"),
    ]
    assert ["not_joined"] * 3 == [await refusal(call) for call in calls]
    with pytest.raises(Refused):
        scene.fleet.heartbeat("z", TASK.key, 0)


async def test_the_end_is_told_to_whoever_waits_and_asks(scene: Scene) -> None:
    """A waiting site learns it at once, another when it comes; an open errand still goes first."""
    waiting = asyncio.create_task(scene.fleet.next_task("a", (), wait=10))
    await asyncio.sleep(0)
    finish = scene.ask("c", replace(TASK, kind=Kind.FINISH))
    await asyncio.sleep(0)
    scene.fleet.end(Over("finished"))
    assert Over("finished") == await waiting == await scene.fleet.next_task("b", (), wait=0)
    assert Kind.FINISH is (await scene.take("c")).task.kind
    await scene.fleet.report("c", "000001-1-finish", SCORES)
    await finish
    assert Over("finished") == await scene.fleet.next_task("c", (), wait=0)


async def test_a_new_errand_replaces_an_old_one(scene: Scene) -> None:
    """A site still measuring when it is asked to train gets the training; its measurement is too late."""
    old = scene.ask(task=EVALUATE)
    await scene.take()
    scene.ask(task=replace(TASK, round=2))
    await asyncio.sleep(0)
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    assert 2 == (await scene.take()).task.round
    assert "late" == await refusal(lambda: scene.fleet.report("a", EVALUATE.key, SCORES))


async def test_the_list_of_sites(scene: Scene) -> None:
    """Who is here, who is away, for how long, doing what."""
    scene.ask("a")
    await scene.take("a")
    scene.fleet.clock += 20
    waiting = asyncio.create_task(scene.fleet.next_task("b", (), wait=10))
    await asyncio.sleep(0)
    lines = {line.site: (line.state, line.doing) for line in scene.fleet.status().sites}
    assert {"a": ("away", "working (train 1)"), "b": ("here", "waiting"), "c": ("away", "away")} == lines
    waiting.cancel()


async def test_two_kinds_of_parcels_of_one_state_at_once(scene: Scene) -> None:
    """A newcomer and a returning site ask in the same moment: each gets whole bytes."""
    scene.books.journal.open_attempt(1, "ab", Draw(("a", "b"), frozenset()))
    scene.books.journal.commit(1, 1, ["a", "b"], {})
    task = Task(Kind.TRAIN, 2, 2)
    scene.ask("a", task)
    scene.ask("b", task)
    await asyncio.sleep(0)
    both = await asyncio.gather(scene.take("a"), scene.take("b", (Mark(1, 1),)))
    assert [0, 1] == [assignment.task.since for assignment in both]
    sizes = {scene.fleet.blob(assignment.blob.digest).stat().st_size for assignment in both}
    assert {68} == sizes


def test_states_are_small(tmp_path: Path) -> None:
    """The numbers these tests count on: 17 of four bytes."""
    books = open_run(tmp_path, build_spec())
    assert 17 == sum(value.numel() for value in State(books.first).values())
    assert DESCRIPTION.to_json() == books.journal.sites()["a"]
    books.journal.close()
