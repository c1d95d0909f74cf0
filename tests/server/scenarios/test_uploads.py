"""Updates on their way in: room made, bytes verified, receipts given once and never in vain."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from hashlib import sha256

import pytest
import torch

from pfl_common.app import prompt_work
from pfl_common.files import recycler
from pfl_common.spec.messages import Blob, Mark, Offer
from pfl_common.spec.run import Kind, Task
from pfl_server.decisions.sampling import Draw
from pfl_server.sites.assignment import SiteLost
from tests.server.support.federation import build_header, make_update, write_parcel
from tests.server.support.scene import TASK, Scene, refusal


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


async def test_an_update_is_written_over_one_that_is_not_needed_any_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very same file, whose pages are warm; as long as its bytes have not come, it counts as nothing."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    places = []
    for number in (1, 2):
        task = replace(TASK, round=number)
        asked = scene.ask("a", task)
        await scene.take()
        offer, raw = scene.prepare_offer("a", task, number)
        await scene.send("a", offer, raw)
        update = scene.books.spool.open(await asked)
        assert raw == update.path.read_bytes()
        places.append(update.path.stat().st_ino)
        assert len(raw) < scene.books.spool.sweep(())
    assert 1 == len(set(places))


async def test_blanks_give_way_to_an_upload_that_has_no_room(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept for speed alone is no reason to send a site away."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    scene.ask()
    await scene.take()
    (scene.folder / "old").write_bytes(b"old")
    assert scene.books.spool.blanks.give(scene.folder / "old")
    kept = scene.folder / "spool" / "blanks"
    full, usage = shutil.disk_usage(scene.folder), shutil.disk_usage
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: full._replace(free=0) if kept.exists() else usage(path)
    )
    await scene.fleet.offer("a", scene.prepare_offer()[0])
    assert not kept.exists()


async def test_what_is_written_over_is_not_promised_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are on the disk already; a shorter one leaves the rest to be promised, until that comes too."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    scene.ask("b")
    scene.ask()
    await scene.take()
    other = scene.fleet.tasks.awaited("b", TASK.key)
    (scene.folder / "old").write_bytes(b"o" * 30)
    assert scene.books.spool.blanks.give(scene.folder / "old")
    incoming = await scene.fleet.offer("a", scene.prepare_offer()[0])
    promised = []
    size = incoming.size
    for came in (0, 29, 31, size):
        incoming.came = came
        promised.append(scene.fleet.tasks.promised(other))
    assert [size - 30, size - 30, size - 31, 0] == promised


async def test_what_came_before_is_taken_off_a_promise_once(scene: Scene) -> None:
    """An upload that goes on at 30 lacks all that is beyond."""
    scene.ask("b")
    scene.ask()
    await scene.take()
    other, (offer, raw) = scene.fleet.tasks.awaited("b", TASK.key), scene.prepare_offer()
    (await scene.fleet.offer("a", offer)).path.write_bytes(raw[:30])
    incoming = await scene.fleet.offer("a", offer)
    scene.fleet.expired("a")
    assert len(raw) - 30 == scene.fleet.tasks.promised(other)
    incoming.came = 8
    scene.fleet.expired("a")
    assert len(raw) - 38 == scene.fleet.tasks.promised(other)


async def test_who_is_given_up_while_room_is_made_leaves_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is begun for nobody would lie there until the next start."""
    monkeypatch.setattr(prompt_work, "PROMPT_BYTES", 0)
    monkeypatch.setattr(recycler, "WORTH", 1)
    asked, lay, loop = scene.ask(), recycler.Blanks.lay, asyncio.get_running_loop()
    await scene.take()
    (scene.folder / "old").write_bytes(b"o" * 30)
    assert scene.books.spool.blanks.give(scene.folder / "old")

    def slow(*words: object) -> bool:
        asyncio.run_coroutine_threadsafe(give_up(), loop).result(timeout=10)
        return lay(*words)  # type: ignore[arg-type]  # as they came

    async def give_up() -> None:
        scene.fleet.give_up("a", "deadline")

    monkeypatch.setattr(recycler.Blanks, "lay", slow)
    assert "late" == await refusal(lambda: scene.fleet.offer("a", scene.prepare_offer()[0]))
    with pytest.raises(SiteLost, match="deadline"):
        await asked
    assert [] == list((scene.folder / "incoming").iterdir())


@pytest.mark.parametrize("difference", [-1, 1, 1 << 40])
async def test_an_offer_of_the_wrong_size(scene: Scene, difference: int) -> None:
    """Refused before a byte is accepted: not even an empty file is made; and what is wrong is not asked for again."""
    asked = scene.ask()
    await scene.take()
    offer, _ = scene.prepare_offer()
    wrong = replace(offer, blob=replace(offer.blob, size=offer.blob.size + difference))
    assert "size" == await refusal(lambda: scene.fleet.offer("a", wrong))
    assert [] == list((scene.folder / "incoming").iterdir())
    assert {"size": 1} == scene.fleet.tasks.refusals
    with pytest.raises(SiteLost, match="refused:size"):
        await asked
    assert None is await scene.fleet.next_task("a", (), wait=0), "it would offer the same for ever"


@pytest.mark.parametrize(
    "change",
    [
        {"round": 2},
        {"attempt": 2},
        {"kind": Kind.EVALUATE},
        {"phase": "warmup"},
        {"sender": "b"},
        {"state": "of another round"},
        {"manifest": "of another run"},
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
    """After a restart the same offer goes on where it stopped; what was left of another attempt is gone."""
    scene.books.journal.open_attempt(1, "ab", Draw(("a", "b"), frozenset()))
    stale = scene.folder / "incoming" / "000001-7-train-b-0123456789abcdef.part"
    stale.write_bytes(b"of an attempt that is over")
    scene.ask()
    offer, raw = scene.prepare_offer()
    await scene.take()
    (await scene.fleet.offer("a", offer)).path.write_bytes(raw[:30])
    await scene.restart()
    scene.ask()
    await scene.take()
    assert 30 == (await scene.fleet.offer("a", offer)).offset
    assert not stale.exists()


async def test_bytes_that_are_not_those_offered(scene: Scene) -> None:
    """A changed byte refuses the upload, frees its file and loses the site its round."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.prepare_offer()
    assert "digest" == await refusal(lambda: scene.send("a", offer, raw[:-1] + bytes([raw[-1] ^ 1])))
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
    monkeypatch.setattr(prompt_work, "PROMPT_BYTES", 0)
    asked = scene.ask()
    await scene.take()
    verify = scene.books.spool.admit
    loop = asyncio.get_running_loop()

    def slow(*words: object) -> str:
        # From the worker thread back into the loop, as the deadline would come in the middle of verifying.
        asyncio.run_coroutine_threadsafe(give_up(), loop).result(timeout=10)
        return verify(*words)

    async def give_up() -> None:
        scene.fleet.give_up("a", "deadline")

    monkeypatch.setattr(scene.books.spool, "admit", slow)
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
    verify, seen = scene.books.spool.admit, []

    def slow(*words: object) -> str:
        for _ in range(2):
            scene.fleet.clock += 1000
            seen.append(scene.fleet.expired("a"))
        return verify(*words)

    monkeypatch.setattr(scene.books.spool, "admit", slow)
    await scene.send("a", *scene.prepare_offer())
    assert [False, False] == seen


async def test_bytes_that_come_in_are_progress(scene: Scene) -> None:
    """An upload over a slow line renews the lease as long as it grows."""
    scene.ask()
    await scene.take()
    incoming = await scene.fleet.offer("a", scene.prepare_offer()[0])
    heard = []
    for size in (1, 2, 2):
        incoming.came = size
        scene.fleet.clock += 10
        heard.append(scene.fleet.expired("a"))
    assert [False, False, False] == heard
    scene.fleet.clock += 6
    assert scene.fleet.expired("a")


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
    sizes = {scene.fleet.blob("a", assignment.blob.digest).stat().st_size for assignment in both}
    assert {68} == sizes
