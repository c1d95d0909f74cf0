"""The letter of an upload: opened once on its way from the offer to the fold, and gone when the round is over."""

from __future__ import annotations

import asyncio
import copy
import gc
import shutil
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from structlog.testing import capture_logs

from pfl_common.identity.cards import Card
from pfl_common.sealing import content_key
from pfl_common.spec.messages import Offer
from pfl_server.envelopes.sealed import SealedLetter
from pfl_server.sites.assignment import SiteLost
from pfl_server.store.tallies import PlainTally
from tests.common.sealing.members import find_bytes
from tests.server.support.scene import TASK, refusal
from tests.server.support.sealed_scene import SEALED_FRAME, SealedScene, open_scene


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    async with open_scene(tmp_path, monkeypatch) as one:
        yield one


class Counts:
    """How often each wrap was opened and each signature verified, counted where the library is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.verified = Counter[bytes](), Counter[bytes]()
        self.raw_keys: set[bytes] = set()
        self._suite, key_of = content_key._SUITE, Card.verifier.fget
        monkeypatch.setattr(content_key, "_SUITE", self)
        monkeypatch.setattr(Card, "verifier", property(lambda card: Verifier(key_of(card), self.verified)))

    def encrypt(self, *words: object) -> bytes:
        return self._suite.encrypt(*words)

    def decrypt(self, wrapped: bytes, *words: object) -> bytes:
        self.opened[wrapped] += 1
        raw = self._suite.decrypt(wrapped, *words)
        self.raw_keys.add(raw)
        return raw

    def of(self, offer: Offer) -> tuple[int, int]:
        """How often its wrap was opened, and how often its signature verified."""
        return self.opened[offer.seal.wrap], self.verified[offer.seal.signature]


class Verifier:
    """A site's public key that counts what it verifies."""

    def __init__(self, key: Ed25519PublicKey, verified: Counter[bytes]) -> None:
        self._key, self._verified = key, verified

    def verify(self, signature: bytes, message: bytes) -> None:
        self._verified[signature] += 1
        self._key.verify(signature, message)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


async def test_an_upload_is_opened_once_from_offer_to_fold(scene: SealedScene, counts: Counts) -> None:
    """Offered, received, verified, kept and added: one letter, whose wrap is opened and signature verified once."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.offer()
    await scene.send("a", offer, raw)
    tally = PlainTally(scene.books.spool)
    tally.add("a", await asked)
    tally.arrivals().shown["a"].load()
    assert (1, 1) == counts.of(offer)


async def test_a_resumed_upload_is_verified_at_each_offer_and_opened_once(
    scene: SealedScene, counts: Counts
) -> None:
    """A site that offers again shows again that it is the site; the letter that is open stays the same."""
    asked = scene.ask()
    await scene.take()
    offer, raw = scene.offer()
    (await scene.fleet.offer("a", offer)).path.write_bytes(raw[: SEALED_FRAME + 1000])
    assert SEALED_FRAME == (await scene.fleet.offer("a", offer)).offset
    await scene.send("a", offer, raw)
    PlainTally(scene.books.spool).add("a", await asked)
    assert (1, 3) == counts.of(offer)


async def test_an_open_letter_is_no_pass(scene: SealedScene, counts: Counts) -> None:
    """A site that has lost its card since it offered is refused, although its letter is open."""
    asked = scene.ask()
    await scene.take()
    offer, _ = scene.offer()
    await scene.fleet.offer("a", offer)
    scene.members.card_file("a").unlink()
    assert "card" == await refusal(lambda: scene.fleet.offer("a", offer))
    with pytest.raises(SiteLost, match="refused:card"):
        await asked
    assert [] == letters()


async def test_a_restarted_coordinator_opens_it_once_more(scene: SealedScene, counts: Counts) -> None:
    """A letter is in memory only: what was half here is offered again, and opened again."""
    scene.ask()
    await scene.take()
    offer, raw = scene.offer()
    (await scene.fleet.offer("a", offer)).path.write_bytes(raw[:SEALED_FRAME])
    await scene.restart()
    asked = scene.ask()
    await scene.take()
    await scene.send("a", offer, raw)
    PlainTally(scene.books.spool).add("a", await asked)
    assert (2, 2) == counts.of(offer)


async def test_other_bytes_have_a_letter_of_their_own(
    scene: SealedScene, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second update that finds no room leaves the first one's letter where it was; taken, it has its own."""
    asked = scene.ask()
    await scene.take()
    (first, raw), (second, other) = scene.offer(words="one"), scene.offer(words="two")
    await scene.fleet.offer("a", first)
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        assert "no_room" == await refusal(lambda: scene.fleet.offer("a", second))
    (await scene.fleet.offer("a", first)).path.write_bytes(raw)
    await scene.fleet.offer("a", second)
    assert 1 == len(letters())
    await scene.send("a", second, other)
    PlainTally(scene.books.spool).add("a", await asked)
    assert (1, 2) == (counts.of(first)[0], counts.of(second)[0])


def letters() -> list[SealedLetter]:
    """The open letters that are anywhere in this process."""
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is SealedLetter]


async def spoil(scene: SealedScene, offer: Offer, raw: bytes) -> None:
    """Bytes that are not the site's."""
    assert "seal" == await refusal(lambda: scene.send("a", offer, bytes(len(raw))))


async def give_up(scene: SealedScene, offer: Offer, raw: bytes) -> None:
    """Half of it came, then nothing."""
    (await scene.fleet.offer("a", offer)).path.write_bytes(raw[:SEALED_FRAME])
    assert 1 == len(letters()), "else there would be nothing to lose"
    scene.fleet.give_up("a", "lease")


async def hang_up(scene: SealedScene, offer: Offer, raw: bytes) -> None:
    """Training stopped waiting."""
    await scene.fleet.offer("a", offer)
    scene.jobs[-1].cancel()


@pytest.mark.parametrize("end", [spoil, give_up, hang_up])
async def test_no_letter_outlives_its_task(
    scene: SealedScene, end: Callable[[SealedScene, Offer, bytes], Awaitable[None]]
) -> None:
    """Refused, given up or not waited for any more: nothing can open what came."""
    asked = scene.ask()
    await scene.take()
    await end(scene, *scene.offer())
    await asyncio.wait([asked])
    assert [] == letters()


@pytest.mark.parametrize("counted", [True, False])
async def test_no_letter_outlives_its_round(scene: SealedScene, counted: bool) -> None:
    """Verified, its letter waits in the spool; when the round is over it is gone, folded or not."""
    asked = scene.ask()
    await scene.take()
    await scene.hand_in()
    name, tally = await asked, PlainTally(scene.books.spool)
    if counted:
        tally.add("a", name)
    assert 1 == len(letters())
    tally.close()
    assert [] == letters()


async def test_no_key_of_an_upload_is_shown_or_written(scene: SealedScene, counts: Counts) -> None:
    """Nothing that holds an open letter tells of it, no line of the log and no file of the coordinator."""
    asked = scene.ask()
    with capture_logs() as lines:
        await scene.take()
        offer, raw = scene.offer()
        await scene.fleet.offer("a", offer)
        assigned = scene.fleet.tasks.awaited("a", TASK.key)
        said = [repr(assigned), repr(assigned.letter), str(assigned.letter)]
        await scene.send("a", offer, raw)
        update = scene.books.spool.open(await asked)
        said += [repr(update), repr(update.letter), repr(vars(scene.books.spool)), repr(lines)]
    (key,) = (raw_key for raw_key in counts.raw_keys if len(raw_key) == content_key.KEY_BYTES)
    assert "SealedLetter(...)" == repr(update.letter)
    for form in (key.hex(), b64encode(key).decode(), repr(key)[2:-1]):
        assert not [words for words in said if form in words]
        assert [] == find_bytes(scene.folder, form.encode())
    assert [] == find_bytes(scene.folder, key)
    with pytest.raises(TypeError, match="does not leave its process"):
        copy.deepcopy(update.letter)
