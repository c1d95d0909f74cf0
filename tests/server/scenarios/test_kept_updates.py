"""What lies in the spool is known by its sender's signature when it is read, not by its wrap alone."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.identity import Keyring
from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Kind, Task
from pfl_server.store.spool import _OFFER
from tests.common.sealing.members import offer_of
from tests.server.support.federation import build_header, make_update, write_parcel
from tests.server.support.scene import TASK
from tests.server.support.sealed_scene import SealedScene, mark, open_scene

NAME = "000001-1-a"
NEXT = Task(Kind.TRAIN, 1, 2, attempt=2)


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    """A coordinator with an honest site's update in its spool."""
    async with open_scene(tmp_path, monkeypatch) as one:
        job = one.ask()
        await one.take()
        await one.hand_in()
        assert NAME == await job
        one.books.spool.let_letters_go()
        yield one


def lay(scene: SealedScene, offer: Offer, raw: bytes, name: str = NAME) -> None:
    """What somebody does who may write into the spool and knows how everything there is written."""
    spool = scene.folder / "spool"
    (spool / f"{name}.raw").write_bytes(raw)
    (spool / f"{name}.json").write_bytes(_OFFER.dump_json(offer))


def forged(scene: SealedScene, keyring: Keyring, *words: str) -> tuple[Offer, bytes]:
    """An update under site a's header, sealed for this coordinator, signed by whoever holds these keys."""
    plain = scene.mail / "forged"
    groups = write_parcel(plain, scene.spec, mark(make_update(scene.spec, "a", *words)))
    return offer_of(
        keyring.envelope_keys(),
        plain.read_bytes(),
        header=build_header(scene.spec, "a", TASK, groups),
        task=TASK,
        to=scene.members.coordinator,
        file=scene.mail / "sealed-forged",
    )


def is_refused(scene: SealedScene, name: str = NAME) -> str:
    """Neither read nor taken for whole; gives the code."""
    assert not scene.books.spool.intact(name)
    with pytest.raises(Refused) as refused:
        scene.books.spool.open(name)
    return refused.value.code


async def test_a_genuine_update_is_read(scene: SealedScene) -> None:
    """By itself, after its site got newer keys, and after the operator removed it: it was its own when it came."""
    assert scene.books.spool.intact(NAME)
    keys = scene.members.folder / "keys-a"
    shutil.rmtree(keys)
    scene.members.keyring("a")
    assert scene.books.spool.open(NAME).up().summed
    scene.members.authority.cards.remove("a")
    assert scene.books.spool.open(NAME).up().summed


@pytest.mark.parametrize("by", ["a stranger", "another site"])
async def test_an_update_sealed_anew_by_somebody_else(scene: SealedScene, by: str, tmp_path: Path) -> None:
    """Its wrap opens and its note fits: only the signature is not the site's."""
    keyring = Keyring.open(tmp_path / "stranger") if by == "a stranger" else scene.members.keyring("b")
    lay(scene, *forged(scene, keyring, "other"))
    assert "seal" == is_refused(scene)


async def test_another_genuine_update_of_the_same_site(scene: SealedScene) -> None:
    """Signed by the site, for another attempt: it is not what this name stands for."""
    lay(scene, *scene.offer(task=NEXT))
    assert "header" == is_refused(scene)


async def test_an_update_of_another_run(scene: SealedScene) -> None:
    """Signed by the site, for another run with the same rounds."""
    offer, raw = scene.offer()
    lay(scene, replace(offer, header=replace(offer.header, run="run-b")), raw)
    assert is_refused(scene) in ("header", "seal")


async def test_a_note_that_was_rewritten(scene: SealedScene) -> None:
    """Each part of a note is signed: another digest, size or wrap is not the site's word."""
    offer, raw = scene.offer()
    _, other = scene.offer(words="other")
    wrap = scene.offer(words="third")[0].seal.wrap
    for changed in (
        replace(offer, blob=replace(offer.blob, digest="0" * 64)),
        replace(offer, seal=replace(offer.seal, wrap=wrap)),
    ):
        lay(scene, changed, raw)
        assert "seal" == is_refused(scene)
    lay(scene, offer, other)
    assert not scene.books.spool.intact(NAME)
