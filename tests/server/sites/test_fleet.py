"""The fleet between training and sites: tasks handed over, reports taken, silence noticed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfl_common.errors import Refused
from pfl_common.evaluation import vector
from pfl_common.spec.messages import OPENING, Assignment, Joined, Mark, Over, Receipt
from pfl_common.spec.run import Description, Kind, Task
from pfl_common.tensors.state import State
from pfl_server.decisions.sampling import Draw
from pfl_server.sites.assignment import SiteLost
from tests.server.support.federation import DESCRIPTION, build_header, build_spec, open_run
from tests.server.support.scene import TASK, Scene, refusal

EVALUATE = Task(Kind.EVALUATE, 1, 2)

SCORES = {"pre/test/combined": vector(3, 4, 0.5)}


async def test_a_task_and_its_update(scene: Scene) -> None:
    """A site that waits gets the task; its update ends it and is in the spool and in the journal."""
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


async def test_the_same_task_again(scene: Scene) -> None:
    """A site that lost the answer, or was restarted, gets the same task and the same bytes."""
    scene.ask()
    first = await scene.take()
    assert first == await scene.take()


async def test_the_same_task_after_the_coordinator_was_killed(scene: Scene) -> None:
    """The restarted coordinator asks the same, under the same key."""
    scene.ask()
    first = await scene.take()
    await scene.restart()
    scene.ask()
    again = await scene.take()
    assert (first.key, first.blob, first.header) == (again.key, again.blob, again.header)


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


@pytest.mark.parametrize(("number", "code"), [(0.0, "scores"), (math.nan, "not_finite")])
async def test_a_made_up_report(scene: Scene, number: float, code: str) -> None:
    """Numbers that no evaluation gives are refused and not summed. The task is over: a site that comes would get
    the same task, and hand in the same, until the deadline.
    """
    asked = scene.ask()
    await scene.take()
    made_up = {"pre/test/combined": [number] * 106}
    assert code == await refusal(lambda: scene.fleet.report("a", TASK.key, made_up))
    with pytest.raises(SiteLost) as lost:
        await asked
    assert f"refused:{code}" == lost.value.reason
    assert [] == scene.books.journal.reports(TASK.key)


async def test_long_words_are_cut_before_they_are_cleaned(scene: Scene) -> None:
    """Four million characters of a peer cost the event loop no more than a line of them."""
    seen = Long("x" * 4_000_000)
    scene.ask()
    await scene.take()
    await scene.fleet.decline("a", TASK.key, "policy", seen)
    assert seen.walked <= 1000


class Long(str):
    """A text that knows how much of it was looked at, sign by sign."""

    walked = 0

    def __iter__(self) -> Iterator[str]:
        for sign in super().__iter__():
            self.walked += 1
            yield sign


@pytest.mark.parametrize("reason", ["dropped", "disk_full"])
async def test_a_declined_task_is_lost(scene: Scene, reason: str) -> None:
    """The reason is the one the site gave."""
    asked = scene.ask(task=replace(TASK, drop=reason == "dropped"))
    await scene.take()
    await scene.fleet.decline("a", TASK.key, reason, "no room")
    with pytest.raises(SiteLost, match=reason):
        await asked


async def test_a_site_that_was_not_drawn_does_not_drop_out(scene: Scene) -> None:
    """Drop-outs are nobody's fault and no quorum counts on them: who is none cannot say so."""
    asked = scene.ask()
    await scene.take()
    assert "reason" == await refusal(lambda: scene.fleet.decline("a", TASK.key, "dropped", ""))
    with pytest.raises(SiteLost, match="refused:reason"):
        await asked


async def test_a_report_of_more_samples_than_there_can_be(scene: Scene) -> None:
    """A site that declared ten does not own the figures over all samples with a million million of them."""
    asked = scene.ask(task=EVALUATE)
    await scene.take()
    claimed = {"pre/test/combined": vector(3, 10**12, 0.5)}
    assert "scores" == await refusal(lambda: scene.fleet.report("a", EVALUATE.key, claimed))
    with pytest.raises(SiteLost, match="refused:scores"):
        await asked


async def test_joining_again_is_not_written_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal has a site's description once, until it says another, or its goodbye was written down."""
    written = []
    register = scene.books.journal.register.soon

    def note(site: str, *words: object, **named: object) -> object:
        written.append(site)
        return register(site, *words, **named)

    monkeypatch.setattr(scene.books.journal, "register", SimpleNamespace(soon=note))
    for _ in range(20):
        await scene.fleet.join("d", DESCRIPTION)
    assert ["d"] == written
    await scene.fleet.join("d", replace(DESCRIPTION, samples=9))
    await scene.fleet.leave("d")
    await scene.fleet.join("d", replace(DESCRIPTION, samples=9))
    assert ["d"] * 3 == written


async def test_coming_and_going_floods_neither_events_nor_journal(scene: Scene) -> None:
    """A hundred times: four events and a sum of them, and as few lines in the journal."""
    for _ in range(100):
        await scene.fleet.leave("b")
        await scene.fleet.join("b", DESCRIPTION)
    told = [event.words for event in scene.fleet._record.events.newest()]
    assert 5 == len(told)
    assert "b joined 100 times and left 100 times" in told
    assert {} == scene.books.journal.goodbyes()


async def test_a_task_asked_again_is_no_sign_of_life(scene: Scene) -> None:
    """Whoever asks for ever for what it was given is silent when its lease ends."""
    scene.ask()
    await scene.take()
    for _ in range(4):
        scene.fleet.clock += 5
        await scene.take()
    assert scene.fleet.expired("a")


async def test_reading_data_excuses_a_site_for_a_while(scene: Scene) -> None:
    """Twenty leases in all, however often it is started again."""
    heard = []
    scene.ask()
    await asyncio.sleep(0)
    for _ in range(100):
        scene.fleet.clock += 5
        scene.fleet.heartbeat("a", OPENING, 0)
        heard.append(scene.fleet.expired("a"))
    assert not any(heard[:60])
    assert all(heard[66:])


@pytest.mark.parametrize(
    ("rules", "silent"), [({"straggler": 3.0}, False), ({}, True), ({"straggler": 3.0, "quorum": 1.0}, True)]
)
async def test_work_at_a_task_that_is_over(tmp_path: Path, rules: dict[str, object], silent: bool) -> None:
    """Is no silence where the rule for slow sites bounds it, and ends when the site has come for its next task."""
    scene = Scene(tmp_path, build_spec(**rules))
    scene.ask()
    await asyncio.sleep(0)
    for _ in range(4):
        scene.fleet.clock += scene.spec.lease_seconds / 2
        assert not scene.fleet.heartbeat("a", "000000-1-train", 1)
    assert silent is scene.fleet.expired("a")
    await scene.take()
    for _ in range(4):
        scene.fleet.clock += scene.spec.lease_seconds / 2
        scene.fleet.heartbeat("a", "000000-1-train", 1)
    assert scene.fleet.expired("a")
    await scene.close()


async def test_another_sites_parcel_cannot_be_fetched(scene: Scene) -> None:
    """A method with a reply for each site: the digest of another's is not enough to get it."""
    books = scene.fleet._books
    manifest = books.spec.manifest(Kind.TRAIN, "train", "down")
    header = replace(build_header(books.spec, "a", TASK), direction="down")
    mixed = State({name: value + 1 for name, value in books.half.welcome(books.first).items()})
    own = books.shelf.put(mixed, header, manifest, who="send/a", site="a")
    assert scene.fleet.blob("a", own.blob.digest).exists()
    for _ in range(2):
        assert "unknown_blob" == await refusal(lambda: fetch(scene, "b", own.blob.digest))
        await scene.restart()


async def test_a_memory_that_changes_at_each_call(scene: Scene) -> None:
    """Each state that a site says it begins from is a parcel to be made: a few, and then the last of those again."""
    journal, draw = scene.books.journal, Draw(("a",), frozenset())
    for number in range(1, 11):
        journal.open_attempt(number, "a", draw)
        journal.commit(number, 1, ["a"], {})
    scene.ask(task=Task(Kind.TRAIN, 11, 12))
    since = [(await scene.take(marks=(Mark(number, 1),))).task.since for number in range(1, 11)]
    assert [1, 2, 3, *[3] * 7] == since
    assert 1 == (await scene.take(marks=(Mark(1, 1),))).task.since


async def test_equal_bytes_for_one_and_for_all(scene: Scene) -> None:
    """In one process they have one name: what everybody is given is nobody's own, in whatever order it was made."""
    books = scene.fleet._books
    manifest = books.spec.manifest(Kind.TRAIN, "train", "down")
    header = replace(build_header(books.spec, "a", TASK), direction="down")
    for who, site in (("send/a", "a"), ("welcome", ""), ("send/c", "c")):
        posted = books.shelf.put(books.half.welcome(books.first), header, manifest, who=who, site=site)
    assert scene.fleet.blob("b", posted.blob.digest).exists()


async def fetch(scene: Scene, site: str, digest: str) -> Path:
    return scene.fleet.blob(site, digest)


async def test_a_reason_that_is_none(scene: Scene) -> None:
    """Reasons become labels of metrics: only those of the list are taken."""
    asked = scene.ask()
    await scene.take()
    assert "reason" == await refusal(lambda: scene.fleet.decline("a", TASK.key, "bored", ""))
    assert not asked.done()


async def test_leaving_loses_the_task_at_once(scene: Scene) -> None:
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


async def test_a_lease_is_not_charged_for_a_reply_that_takes_long(scene: Scene) -> None:
    """A reply of many models may take minutes: until it is made, and for a lease from then on, no site is silent."""
    made = asyncio.Event()

    async def prepare(asked: Task) -> Assignment:
        await made.wait()
        return await scene.downloads.assignment("a", asked)

    scene.jobs.append(asyncio.create_task(scene.fleet.ask("a", TASK, prepare)))
    taking = asyncio.create_task(scene.take())
    await asyncio.sleep(0)
    scene.fleet.clock += 1000
    assert not scene.fleet.expired("a")
    made.set()
    await taking
    assert not scene.fleet.expired("a")
    scene.fleet.clock += 16
    assert scene.fleet.expired("a")


async def test_a_site_that_hangs_up_while_its_reply_is_made_has_a_lease(scene: Scene) -> None:
    """Nobody waits for that reply any more; the site may come again, and is silent if it does not."""
    scene.jobs.append(asyncio.create_task(scene.fleet.ask("a", TASK, lambda _: asyncio.Future())))
    taking = asyncio.create_task(scene.take())
    for _ in range(3):
        await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert not scene.fleet.expired("a")
    scene.fleet.clock += 16
    assert scene.fleet.expired("a")


async def test_a_site_that_still_reads_its_data_is_not_silent(scene: Scene) -> None:
    """Between joining and its first task it says so; once the task is handed out, only its progress counts."""
    scene.ask()
    await asyncio.sleep(0)
    for _ in range(3):
        scene.fleet.clock += 10
        assert scene.fleet.heartbeat("a", OPENING, 0)
        assert not scene.fleet.expired("a")
    await scene.take()
    scene.fleet.clock += 16
    assert not scene.fleet.heartbeat("a", OPENING, 0)
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
    assert Joined(scene.spec.to_json(), scene.books.init.blob) == joined
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
    """Only the task of this site is answered, by its own key."""
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
    """A site that has not joined is told to."""
    calls = [
        lambda: scene.fleet.next_task("z", (), wait=0),
        lambda: scene.fleet.stored("z", TASK.key),
        lambda: scene.fleet.leave("z"),
    ]
    assert ["not_joined"] * 3 == [await refusal(call) for call in calls]
    with pytest.raises(Refused):
        scene.fleet.heartbeat("z", TASK.key, 0)


async def test_the_end_is_told_to_whoever_waits_and_asks(scene: Scene) -> None:
    """A waiting site learns it at once, another when it comes; an open task still goes first."""
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


async def test_a_new_task_replaces_an_old_one(scene: Scene) -> None:
    """A site still measuring when it is asked to train gets the training; its measurement is too late."""
    old = scene.ask(task=EVALUATE)
    await scene.take()
    scene.ask(task=replace(TASK, round=2))
    await asyncio.sleep(0)
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    assert 2 == (await scene.take()).task.round
    assert "late" == await refusal(lambda: scene.fleet.report("a", EVALUATE.key, SCORES))


def test_states_are_small(tmp_path: Path) -> None:
    """The numbers these tests count on: 17 of four bytes."""
    books = open_run(tmp_path, build_spec())
    assert 17 == sum(value.numel() for value in State(books.first).values())
    assert DESCRIPTION.to_json() == books.journal.sites()["a"]
    books.journal.close()


def commit(scene: Scene, *numbers: int) -> None:
    """Rounds that counted site a."""
    for number in numbers:
        scene.books.journal.open_attempt(number, "a", Draw(("a",), frozenset()))
        scene.books.journal.commit(number, 1, ["a"], {})


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ((Mark(2, 1), Mark(1, 1)), ""),
        ((Mark(3, 1), Mark(2, 1)), ""),
        ((Mark(1, 1),), "came back without its state after round 2"),
        ((), "came back without its state after round 2"),
        ((Mark(7, 1), Mark(6, 1)), "it is at round 7 already"),
    ],
)
async def test_two_memories_that_differ(scene: Scene, marks: tuple[Mark, ...], words: str) -> None:
    """A state folder that was brought back from an old copy, on either side, is not passed over in silence."""
    commit(scene, 1, 2)
    await scene.restart()
    scene.ask(task=Task(Kind.TRAIN, 3, 3))
    await scene.take(marks=marks)
    (line, *_) = scene.fleet.status().sites
    assert words in line.doing
    assert bool(words) == (";" in line.doing)


async def test_a_held_call_ends_with_its_task(scene: Scene) -> None:
    """It is no longer wanted: the site hears so with its next heartbeat, and not only when the time is over."""
    scene.ask()
    await scene.take()
    held = asyncio.create_task(scene.fleet.linger("a", TASK.key, seconds=500))
    await asyncio.sleep(0)
    scene.fleet.give_up("a", "deadline")
    await held
    await scene.fleet.linger("a", TASK.key, seconds=500)
    assert not scene.fleet.heartbeat("a", TASK.key, 1)


async def test_the_end_says_how_often_a_site_was_in_it(scene: Scene) -> None:
    """To each site and in the status; nothing where nobody was counted, as in a run without a round."""
    scene.fleet.end(Over("finished"))
    assert Over("finished") == await scene.fleet.next_task("a", (), wait=0)
    scene.fleet.took_part.update(["b", "b"])
    assert [0, 2] == [(await scene.fleet.next_task(site, (), wait=0)).counted for site in "ab"]
    assert [0, 2, 0] == [line.counted for line in scene.fleet.status().sites]


async def test_nobody_waits_for_the_answer_any_more(scene: Scene) -> None:
    """From the moment in which training is stopped: the task is over, and what has come stays for the next life."""
    asked = scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    await scene.fleet.offer("a", offer)
    asked.cancel()
    assert "late" == await refusal(lambda: scene.fleet.stored("a", TASK.key))
    scene.fleet.give_up("a", "deadline")
    assert 1 == len(list((scene.folder / "incoming").iterdir()))
