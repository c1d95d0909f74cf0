"""Sealed uploads at a real coordinator: what is not a site's own update for just this task is refused and counted."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from pfl_common import sealing
from pfl_common.sealing import FRAME, TAG, Tampered
from pfl_common.sealing.frame_cipher import Opener
from pfl_common.spec.messages import Blob, Offer
from pfl_server.sites.assignment import SiteLost
from tests.common.sealing.members import PATTERN, Members, find_bytes, offer_of, vouch
from tests.server.support import troubled_cards
from tests.server.support.forgeries import FORGED, Forge
from tests.server.support.scene import TASK, refusal
from tests.server.support.sealed_scene import SEALED_FRAME, SealedScene, cut_frames, flipped, open_scene

NEXT = replace(TASK, attempt=2)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    async with open_scene(tmp_path, monkeypatch) as one:
        yield one


@pytest.fixture
async def asked(scene: SealedScene) -> asyncio.Task[str]:
    """Site a has been given its task."""
    job = scene.ask()
    await scene.take()
    return job


async def try_again(scene: SealedScene) -> str:
    """The round's next attempt, with an honest update of site a."""
    asked = scene.ask(task=NEXT)
    await scene.take()
    await scene.hand_in(task=NEXT)
    return await asked


@pytest.mark.parametrize(
    ("forge", "code"), FORGED, ids=[f"{n}-{f.__name__}" for n, (f, _) in enumerate(FORGED)]
)
async def test_an_offer_that_is_not_this_sites_for_this_task(
    scene: SealedScene, asked: asyncio.Task[str], forge: Forge, code: str
) -> None:
    """It is refused before its first byte and counted by its code; the next attempt's honest one is taken."""
    offer, _ = forge(scene)
    assert code == await refusal(lambda: scene.fleet.offer("a", offer))
    assert {code: 1} == scene.fleet.tasks.refusals
    assert [] == list((scene.folder / "incoming").iterdir())
    assert scene.untouched()
    with pytest.raises(SiteLost, match=f"refused:{code}"):
        await asked
    assert "000001-2-a" == await try_again(scene)
    assert ["000001-2-a.raw"] == scene.spooled()


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda raw: b"",
    "cut by a byte": lambda raw: raw[:-1],
    "cut by a frame": lambda raw: cut_frames(raw, (0, 1)),
    "one frame alone": lambda raw: cut_frames(raw, (0,)),
    "frames swapped": lambda raw: cut_frames(raw, (1, 0, 2)),
    "a frame doubled in place": lambda raw: cut_frames(raw, (0, 0, 2)),
    "a frame doubled": lambda raw: cut_frames(raw, (0, 1, 1, 2)),
    "the last frame doubled": lambda raw: cut_frames(raw, (0, 1, 2, 2)),
    "a byte appended": lambda raw: raw + b"\0",
    "a frame appended": lambda raw: raw + bytes(SEALED_FRAME),
    "a bit in the first frame": flipped(0.0),
    "a bit in the first tag": lambda raw: raw[:FRAME] + flipped(0.0)(raw[FRAME:]),
    "a bit in the middle": flipped(0.5),
    "a bit in the last frame": flipped(0.9),
    "a bit in the last tag": flipped(1.0),
    "zeros": lambda raw: bytes(len(raw)),
}


@pytest.mark.parametrize("how", SPOILT)
async def test_bytes_that_changed_on_their_way(
    scene: SealedScene, asked: asyncio.Task[str], how: str
) -> None:
    """All of an upload is thrown away, the site loses this attempt, and the next one is counted."""
    offer, raw = scene.offer()
    incoming = await scene.fleet.offer("a", offer)
    incoming.path.write_bytes(SPOILT[how](raw))
    assert [] == scene.leaks()
    assert "seal" == await refusal(lambda: scene.fleet.stored("a", TASK.key))
    with pytest.raises(SiteLost, match="refused:seal"):
        await asked
    assert {"seal": 1} == scene.fleet.tasks.refusals
    assert [] == list((scene.folder / "incoming").iterdir())
    assert scene.untouched()
    assert "000001-2-a" == await try_again(scene)


async def test_bytes_of_another_genuine_update(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """Two updates of one site for one task, both signed: one's bytes do not do for the other's offer."""
    first, _ = scene.offer(words="one")
    _, raw = scene.offer(words="two")
    assert "seal" == await refusal(lambda: scene.send("a", first, raw))
    assert scene.untouched()


async def test_a_site_that_seals_two_updates_under_one_key(
    scene: SealedScene, asked: asyncio.Task[str]
) -> None:
    """Every frame of the second opens beside the first one's offer; the signed hash of all tags tells them apart."""
    with mock.patch("pfl_common.sealing.frame_cipher.secrets.token_bytes", lambda count: bytes(count)):
        first, _ = scene.offer(words="one")
        _, raw = scene.offer(words="two")
    assert "seal" == await refusal(lambda: scene.send("a", first, raw))
    with pytest.raises(SiteLost, match="refused:seal"):
        await asked
    assert scene.untouched()


async def test_a_download_sent_back_up(scene: SealedScene) -> None:
    """Its recipients know its key and can sign anything over it; its frames are no upload's all the same."""
    asked, assignment = scene.ask(), await scene.take()
    keys = scene.members.keyring("a").envelope_keys()
    down = sealing.bind(assignment.header.to_json().encode())
    key = sealing.unwrap(assignment.seal.wrap, keys, name="a", header_hash=down.hash)
    raw = scene.fleet.blob("a", assignment.blob.digest).read_bytes()
    honest, _ = scene.offer()
    tags = [raw[at : at + SEALED_FRAME][-TAG:] for at in range(0, len(raw), SEALED_FRAME)]
    blob = Blob(hashlib.sha256(b"".join(tags)).hexdigest(), honest.blob.size)
    bound = sealing.bind(honest.header.to_json().encode()).hash
    wrapped = sealing.wrap(key, scene.members.coordinator, header_hash=bound)
    offer = Offer(TASK.key, honest.header, blob, vouch(keys, honest.header, blob, wrap=wrapped))
    assert len(raw) < blob.size, "a download has no weights"
    assert "seal" == await refusal(lambda: scene.send("a", offer, raw + bytes(blob.size - len(raw))))
    with pytest.raises(SiteLost, match="refused:seal"):
        await asked
    assert scene.untouched()


async def test_a_group_the_run_does_not_have(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """Signed and sealed by the site itself: what it says of its content is checked all the same."""
    assert "groups" == await refusal(lambda: scene.send("a", *scene.offer(groups=("show",))))
    assert scene.untouched()


async def test_numbers_that_are_none(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """They are seen behind the seal, and nothing of them is left on the disk."""
    keys, honest = scene.members.keyring("a").envelope_keys(), scene.offer()[0]
    plain = bytearray((scene.mail / "plain-a").read_bytes())
    plain[-4 * 1000 : -4 * 999] = b"\x00\x00\xc0\x7f"
    sealed = offer_of(
        keys,
        bytes(plain),
        header=honest.header,
        task=TASK,
        to=scene.members.coordinator,
        file=scene.mail / "x",
    )
    assert await refusal(lambda: scene.send("a", *sealed)) in ("not_finite", "weight")
    assert scene.untouched()


async def test_two_updates_under_one_key(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """The second is refused as different, and the first one's receipt and bytes stay what they are."""
    first, raw = scene.offer(words="one")
    receipt = await scene.send("a", first, raw)
    second, _ = scene.offer(words="two")
    assert "different" == await refusal(lambda: scene.fleet.offer("a", second))
    again, _ = scene.offer(words="one")
    assert "different" == await refusal(lambda: scene.fleet.offer("a", again)), "sealed anew it is another"
    assert {"different": 2} == scene.fleet.tasks.refusals
    assert receipt == await scene.fleet.offer("a", first)
    assert raw == scene.books.spool.open(await asked).path.read_bytes()


async def test_a_receipt_is_the_same_each_time(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """Repeated, and after a restart too, it is the same to the last bit of its signature."""
    offer, raw = scene.offer()
    receipt = await scene.send("a", offer, raw)
    sealing.verify_receipt(scene.members.coordinator, receipt, receipt.signature)
    assert receipt == await scene.fleet.offer("a", offer)
    await scene.restart()
    assert receipt == await scene.fleet.offer("a", offer)
    assert "000001-1-a" == await scene.ask()


@pytest.mark.parametrize(
    "trouble",
    [
        troubled_cards.no_card,
        troubled_cards.card_has_ended,
        troubled_cards.card_begins_later,
        troubled_cards.card_of_another_federation,
        troubled_cards.card_of_another_site,
        troubled_cards.torn_card,
    ],
)
async def test_a_site_without_a_good_card(
    scene: SealedScene, asked: asyncio.Task[str], trouble: Callable[[Members], None]
) -> None:
    """Nobody can speak for a site whose keys are not vouched for; enrolled again, it is heard."""
    offer, _ = scene.offer()
    trouble(scene.members)
    assert "card" == await refusal(lambda: scene.fleet.offer("a", offer))
    assert {"card": 1} == scene.fleet.tasks.refusals
    assert scene.untouched()
    with pytest.raises(SiteLost, match="refused:card"):
        await asked
    scene.members.keyring("a")
    assert "000001-2-a" == await try_again(scene)


async def test_a_site_that_enrolled_anew(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """A spooled update is known by any card its site ever had: that none is in force any more takes nothing from it."""
    offer, raw = scene.offer()
    await scene.send("a", offer, raw)
    scene.members.authority.cards.remove("a")
    await scene.restart()
    name = await scene.ask()
    assert PATTERN in (scene.mail / "plain-a").read_bytes()
    loaded = scene.books.spool.open(name).up()
    assert any(PATTERN in term.value.numpy().tobytes() for term in loaded.summed.values())


async def test_no_plaintext_ever_lies_at_the_coordinator(
    scene: SealedScene, asked: asyncio.Task[str]
) -> None:
    """Half arrived, whole, verified, spooled, read again and after a restart: sealed to the last byte."""
    offer, raw = scene.offer()
    assert ["plain-a"] == find_bytes(scene.mail, PATTERN), "else there would be nothing to find"
    incoming = await scene.fleet.offer("a", offer)
    incoming.path.write_bytes(raw[: SEALED_FRAME + 1000])
    assert SEALED_FRAME == (await scene.fleet.offer("a", offer)).offset
    assert [] == scene.leaks()
    incoming.path.write_bytes(raw)
    await scene.fleet.stored("a", TASK.key)
    assert [] == scene.leaks()
    await scene.restart()
    update = scene.books.spool.open(await scene.ask())
    assert PATTERN in b"".join(term.value.numpy().tobytes() for term in update.up().summed.values())
    assert [] == scene.leaks()


async def test_an_upload_goes_on_after_its_last_genuine_frame(
    scene: SealedScene, asked: asyncio.Task[str]
) -> None:
    """What is spoilt at the end of a partial upload is sent again, what is genuine is not."""
    offer, raw = scene.offer()
    incoming = await scene.fleet.offer("a", offer)
    for content, offset in [
        (raw[:100], 0),
        (flipped(0.0)(raw), 0),
        (raw[:SEALED_FRAME], SEALED_FRAME),
        (raw[:SEALED_FRAME] + flipped(0.5)(raw[SEALED_FRAME:]), SEALED_FRAME),
        (raw, len(raw)),
    ]:
        incoming.path.write_bytes(content)
        assert offset == (await scene.fleet.offer("a", offer)).offset
    await scene.send("a", offer, raw)
    assert "000001-1-a" == await asked


async def test_an_offer_repeated_opens_nothing_twice(
    scene: SealedScene, asked: asyncio.Task[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each frame of a partial upload is opened once, however often the site offers it again; what came since is new."""
    opened, open_frame = [], Opener.opens

    def count(opener: Opener, frame: memoryview, *words: object, **named: object) -> bool:
        opened.append(len(frame))
        return open_frame(opener, frame, *words, **named)

    offer, raw = scene.offer()
    incoming = await scene.fleet.offer("a", offer)
    incoming.path.write_bytes(raw[: 2 * SEALED_FRAME])
    monkeypatch.setattr(Opener, "opens", count)
    offsets = [(await scene.fleet.offer("a", offer)).offset for _ in range(50)]
    assert [2 * SEALED_FRAME] * 50 == offsets
    assert [SEALED_FRAME] * 2 == opened
    incoming.path.write_bytes(raw)
    assert len(raw) == (await scene.fleet.offer("a", offer)).offset
    assert 3 == len(opened)
    await scene.fleet.stored("a", TASK.key)
    assert "000001-1-a" == await asked


async def test_a_spooled_update_that_was_exchanged(scene: SealedScene, asked: asyncio.Task[str]) -> None:
    """Another genuine update laid in its place is not what the receipt is for: it is asked for again."""
    await scene.send("a", *scene.offer(words="one"))
    name, folder = await asked, scene.folder / "spool"
    other, raw = scene.offer(words="two")
    note = json.loads((folder / f"{name}.json").read_bytes())
    note["blob"]["digest"] = other.blob.digest
    note["seal"] = {"wrap": other.seal.wrap.hex(), "signature": other.seal.signature.hex()}
    (folder / f"{name}.json").write_text(json.dumps(note))
    (folder / f"{name}.raw").write_bytes(raw)
    with pytest.raises(Tampered):
        scene.books.spool.open(name).up()  # as long as it is known what came
    scene.books.spool.open(name).up()  # by itself it is genuine
    await scene.restart()
    again = scene.ask()
    await scene.take()
    assert not again.done()
    assert {} == scene.books.journal.receipts(1, 1)
