"""The intake of uploads where something goes wrong at its own end: a full disk, a site that has other bytes by now."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pfl_common.app import prompt_work
from pfl_common.errors import Refused
from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Kind, Task
from pfl_server.sites.assignment import SiteLost
from pfl_server.sites.service import Incoming
from pfl_server.sites.uploads import MOST_OTHERS, Intake
from tests.server.support.scene import TASK, Scene, refusal

FULL = OSError(errno.ENOSPC, "no space left on device")


async def take_incoming(scene: Scene, offer: Offer) -> Incoming:
    """Room for an upload of site a."""
    incoming = await scene.fleet.offer("a", offer)
    assert isinstance(incoming, Incoming)
    return incoming


def part_names(scene: Scene) -> list[str]:
    """The partial uploads on the disk."""
    return sorted(path.name for path in (scene.folder / "incoming").iterdir())


async def test_a_receipt_is_for_the_bytes_that_came(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first update verified, its receipt could not be written. The site comes with other bytes, as after an outbox
    that was torn: they are verified before their receipt, however often they are offered.
    """
    asked = scene.ask()
    await scene.take()
    first, raw = scene.prepare_offer()

    async def no_room(*words: object, **named: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(scene.books.journal, "receive", SimpleNamespace(soon=no_room))
        assert "no_room" == await refusal(lambda: scene.send("a", first, raw))
    other, other_raw = scene.prepare_offer("a", TASK, "other numbers")
    (await take_incoming(scene, other)).path.write_bytes(other_raw[:30])
    again = await take_incoming(scene, other)
    assert (30, False) == (again.offset, asked.done())
    again.path.write_bytes(other_raw)
    assert other.blob.digest == (await scene.fleet.stored("a", TASK.key)).digest
    assert other_raw == scene.books.spool.open(await asked).path.read_bytes()


async def test_an_update_for_a_task_that_asks_for_none(scene: Scene) -> None:
    """A measurement ends with its report: an upload of it is refused as every other wrong one."""
    task = Task(Kind.EVALUATE, 1, 2)
    asked = scene.ask(task=task)
    await scene.take()
    offer, _ = scene.prepare_offer()
    wrong = replace(offer, key=task.key, header=replace(offer.header, kind=Kind.EVALUATE))
    assert "header" == await refusal(lambda: scene.fleet.offer("a", wrong))
    with pytest.raises(SiteLost, match="refused:header"):
        await asked


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_verification_that_breaks_off(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    """The disk was full: the bytes stay and are offered again. Those of a site that was given up meanwhile go."""
    asked, loop = scene.ask(), asyncio.get_running_loop()
    await scene.take()
    offer, raw = scene.prepare_offer()

    async def give_up() -> None:
        scene.fleet.give_up("a", "deadline")

    def break_off(*words: object) -> str:
        if given_up:
            asyncio.run_coroutine_threadsafe(give_up(), loop).result(timeout=10)
        raise FULL

    with monkeypatch.context() as patch:
        # As of a large one: what takes its time is verified in a thread.
        patch.setattr(prompt_work, "PROMPT_BYTES", 0)
        patch.setattr(scene.books.spool, "admit", break_off)
        assert "no_room" == await refusal(lambda: scene.send("a", offer, raw))
    if given_up:
        with pytest.raises(SiteLost, match="deadline"):
            await asked
        assert [] == part_names(scene)
    else:
        assert len(raw) == (await take_incoming(scene, offer)).offset
        await scene.fleet.stored("a", TASK.key)
        assert "000001-1-a" == await asked


async def test_room_is_not_promised_to_what_was_taken_away(scene: Scene) -> None:
    """An upload that gives way to other bytes leaves its room to the other sites, also where these bytes get none."""
    for site in "ab":
        scene.ask(site)
    await scene.take()
    first, _ = scene.prepare_offer()
    await take_incoming(scene, first)
    waiting = scene.fleet.tasks.awaited("b", TASK.key)
    assert first.blob.size == scene.fleet.tasks.promised(waiting)
    scene.fleet._intake._spare = 1 << 60
    other, _ = scene.prepare_offer("a", TASK, "other numbers")
    assert "no_room" == await refusal(lambda: scene.fleet.offer("a", other))
    assert ([], 0) == (part_names(scene), scene.fleet.tasks.promised(waiting))


async def test_one_receipt_is_written_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offered again while its receipt is written down, an update gets the very same one."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    incoming = await take_incoming(scene, offer)
    incoming.path.write_bytes(raw)
    write, begun, gate = scene.books.journal.receive.soon, asyncio.Event(), asyncio.Event()

    async def slow(*words: object, **named: object) -> None:
        begun.set()
        await gate.wait()
        await write(*words, **named)

    monkeypatch.setattr(scene.books.journal, "receive", SimpleNamespace(soon=slow))
    storing = asyncio.create_task(scene.fleet.stored("a", TASK.key))
    await begun.wait()
    offering = asyncio.create_task(scene.fleet.offer("a", offer))
    await asyncio.sleep(0.05)
    scene.fleet.give_up("a", "deadline")
    gate.set()
    assert await storing == await offering
    assert "000001-1-a" == await asked


async def test_only_partial_uploads_of_an_open_attempt_are_kept(scene: Scene) -> None:
    """What a coordinator that was killed left of attempts that are over is taken away; what is no upload stays."""
    incoming = scene.folder / "incoming"
    open_now = [
        {"status": "committed", "round": 1, "attempt": 1},
        {"status": "open", "round": 1, "attempt": 2},
    ]
    books = SimpleNamespace(
        spec=scene.books.spec,
        spool=scene.books.spool,
        shelf=scene.books.shelf,
        journal=SimpleNamespace(rounds=lambda: open_now),
    )
    names = ["000001-1-train-a.part", "000001-2-train-a.part", "000001-21-train-a.part", "note.txt"]
    for name in names:
        (incoming / name).touch()
    Intake(books, scene.fleet)
    assert [names[1], names[3]] == part_names(scene)


async def test_a_late_stream_leaves_no_file(scene: Scene) -> None:
    """The task is over: whoever still writes the upload finds no folder to begin its file in."""
    asked = scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    incoming = await take_incoming(scene, offer)
    scene.fleet.give_up("a", "lease")
    await asyncio.gather(asked, return_exceptions=True)
    with pytest.raises(FileNotFoundError):
        os.open(incoming.path, os.O_WRONLY | os.O_CREAT)
    assert [] == part_names(scene)


async def test_other_bytes_are_offered_a_few_times_only(scene: Scene) -> None:
    """A torn outbox is trained anew; who comes with other bytes each time holds the round up with nothing."""
    asked = scene.ask()
    await scene.take()
    codes = []
    for number in range(MOST_OTHERS + 2):
        offer, _ = scene.prepare_offer("a", TASK, f"numbers {number}")
        try:
            await scene.fleet.offer("a", offer)
        except Refused as refused:
            codes.append(refused.code)
            break
    assert ["different"] == codes
    with pytest.raises(SiteLost, match="refused:different"):
        await asked
    assert [] == part_names(scene)
