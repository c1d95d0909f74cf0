"""A sealed update that comes with its offer is refused just like one that comes in a stream, and as early."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import Unreachable
from pfl_common.errors import Refused
from pfl_common.spec.messages import Offer, Receipt
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_server.envelopes.sealed import call_book
from pfl_server.network.bulk import Bulk
from pfl_server.network.rpc import Callers
from pfl_server.network.server import GrpcServer
from pfl_server.sites.assignment import SiteLost
from tests.network.federation import HASTY
from tests.server.support import forgeries, sealed_scene
from tests.server.support.forgeries import Forge
from tests.server.support.scene import refusal
from tests.server.support.sealed_scene import SealedScene, flipped, open_scene

Send: TypeAlias = Callable[[GrpcLink, Offer, Path], Awaitable[Receipt]]


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SealedScene]:
    """A sealed run whose updates are small enough to go with a call."""
    monkeypatch.setattr(sealed_scene, "FEATURES", 1000)
    async with open_scene(tmp_path, monkeypatch) as one:
        yield one


@pytest.fixture
async def link(scene: SealedScene) -> AsyncIterator[GrpcLink]:
    """Site a's line to it."""
    members = scene.members
    authority = members.authority
    server = GrpcServer(Callers(call_book(authority, now=members.now)))
    pair = authority.server_certificate((), now=members.now)
    service = SimpleNamespace(desk=scene.fleet)
    port = await server.start(service, host="127.0.0.1", port=0, pair=pair, ca_pem=authority.ca_pem)
    async with GrpcLink(f"127.0.0.1:{port}", members.keyring("a"), patience=HASTY) as one:
        yield one
    await server.stop(0)


async def send_beside(link: GrpcLink, offer: Offer, parcel: Path) -> Receipt:
    """All in one call, also what no site of ours would send so."""
    request = convert.say_offer(offer)
    request.content = parcel.read_bytes()
    return convert.hear_receipt((await link._ask("Offer", request, pb.OfferAnswer)).receipt)


async def send_in_a_stream(link: GrpcLink, offer: Offer, parcel: Path) -> Receipt:
    """Offer, then bytes."""
    answer = await link._offer(offer)
    assert not isinstance(answer, Receipt)
    return await link.carrier._store_rest(offer.key, parcel, answer)


def spoilt(change: Callable[[bytes], bytes]) -> Forge:
    """An honest offer of other bytes than are sent."""

    def forge(scene: SealedScene) -> tuple[Offer, bytes]:
        offer, raw = scene.offer()
        return offer, change(raw)

    return forge


def of_unknown_groups(scene: SealedScene) -> tuple[Offer, bytes]:
    """Sealed and signed with a group that the run does not have."""
    return scene.offer(groups=("show",))


AT_THE_OFFER: tuple[tuple[Forge, str], ...] = (
    (forgeries.one_byte_more, "size"),
    (forgeries.one_frame_less, "size"),
    (forgeries.another_digest, "seal"),
    (forgeries.by_another_key, "seal"),
    (forgeries.seal_changed("signature", 5), "seal"),
    (forgeries.without_seal, "seal"),
    (of_unknown_groups, "groups"),
)
AT_THE_BYTES: tuple[tuple[Forge, str], ...] = (
    (spoilt(flipped(0.0)), "seal"),
    (spoilt(flipped(1.0)), "seal"),
    (spoilt(lambda raw: bytes(len(raw))), "seal"),
)
NOT_ALL: tuple[tuple[Forge, str], ...] = (
    (spoilt(lambda raw: raw + b"1"), "too_large"),
    (spoilt(lambda raw: raw[:-1]), "too_short"),
)


@pytest.mark.parametrize("send", [send_beside, send_in_a_stream])
@pytest.mark.parametrize(("forge", "code"), AT_THE_OFFER + AT_THE_BYTES)
async def test_what_is_wrong_with_it_ends_the_task(
    scene: SealedScene, link: GrpcLink, send: Send, forge: Forge, code: str
) -> None:
    """By the same code, counted once, and nothing of it is kept, whichever way it came."""
    asked = scene.ask()
    await scene.take()
    offer, raw = forge(scene)
    assert 10_000 < len(raw) < convert.BESIDE_BYTES
    (scene.mail / "up").write_bytes(raw)
    assert code == await refusal(lambda: send(link, offer, scene.mail / "up"))
    assert {code: 1} == scene.fleet.tasks.refusals
    with pytest.raises(SiteLost, match=f"refused:{code}"):
        await asked
    assert [] == os.listdir(scene.folder / "incoming")
    assert scene.untouched()


@pytest.mark.parametrize("send", [send_beside, send_in_a_stream])
@pytest.mark.parametrize(("forge", "code"), NOT_ALL)
async def test_more_or_fewer_bytes_than_were_offered(
    scene: SealedScene, link: GrpcLink, send: Send, forge: Forge, code: str
) -> None:
    """No byte beyond those that room was made for is written; the honest ones are taken after it."""
    asked = scene.ask()
    await scene.take()
    offer, raw = forge(scene)
    (scene.mail / "up").write_bytes(raw)
    # A stream that is refused under its last frame may look like a broken line.
    with suppress(Unreachable):
        assert code == await refusal(lambda: send(link, offer, scene.mail / "up"))
    (part,) = (scene.folder / "incoming").iterdir()
    assert part.stat().st_size <= offer.blob.size
    assert scene.untouched()
    assert not asked.done()
    (scene.mail / "up").write_bytes((raw + (scene.mail / "sealed-a").read_bytes()[-1:])[: offer.blob.size])
    assert offer.blob.digest == (await send(link, offer, scene.mail / "up")).digest
    assert "000001-1-a" == await asked


async def test_too_much_is_refused_before_room_is_made(
    scene: SealedScene, link: GrpcLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than may go with a call, and a call that is longer than what may go with it and its own words."""
    heard = []
    monkeypatch.setattr(Bulk, "offer", lambda self, site, offer: heard.append(offer))
    scene.ask()
    await scene.take()
    offer, _ = scene.offer()
    (scene.mail / "up").write_bytes(bytes(convert.BESIDE_BYTES + 1))
    long = replace(offer, key="k" * convert.CARRYING_BYTES)
    (scene.mail / "none").touch()
    for one, file, words in ((offer, "up", "with an offer"), (long, "none", "in a call of Offer")):
        with pytest.raises(Refused, match=rf"^too_large.* bytes {words}"):
            await send_beside(link, one, scene.mail / file)
    assert [] == heard == os.listdir(scene.folder / "incoming")


async def test_nothing_of_it_is_used_before_all_is_verified(
    scene: SealedScene, link: GrpcLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as verification goes on there is no update, no receipt and no plaintext."""
    asked, spool = scene.ask(), scene.books.spool
    await scene.take()
    offer, raw = scene.offer()
    (scene.mail / "up").write_bytes(raw)
    admit, seen = spool.admit, []

    def look(*words: object) -> str:
        seen.append((scene.untouched(), asked.done()))
        name = admit(*words)
        seen.append((not scene.books.journal.receipts(1, 1), asked.done()))
        return name

    monkeypatch.setattr(spool, "admit", look)
    receipt = await send_beside(link, offer, scene.mail / "up")
    assert (offer.key, offer.blob.digest) == (receipt.key, receipt.digest)
    assert 2 * [(True, False)] == seen
    assert "000001-1-a" == await asyncio.wait_for(asked, 10)
