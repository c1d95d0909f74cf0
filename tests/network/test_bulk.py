"""Whole models cross in frames, survive cuts, and arrive as they were or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError

from pfl_client.connection.channel import Patience
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import CALLS, Unreachable
from pfl_client.connection.partial_file import lay
from pfl_common.errors import Refused
from pfl_common.files.recycler import WORTH, Blanks
from pfl_common.spec.messages import Offer, Receipt
from pfl_common.wire import convert
from pfl_server.network import bulk
from pfl_server.network.server import GrpcServer
from pfl_server.sites.service import Incoming
from tests.network.cutting_proxy import CuttingProxy
from tests.network.federation import Federation
from tests.network.file_desk import QUOTA, blob_of, upload

MODEL_BYTES = 45 << 20
CUT_BYTES = MODEL_BYTES * 6 // 10
MOST_BYTES = MODEL_BYTES * 105 // 100
UNREAD_BYTES = 2 << 20
"""A frame that is being read, one that is being written, and gRPC's window."""


async def test_a_model_streams_both_ways(federation: Federation, tmp_path: Path) -> None:
    """45 MiB go down and up with every limit on messages as gRPC sets it."""
    content = os.urandom(MODEL_BYTES)
    blob = federation.desk.lay(content)
    async with federation.link("hospital_a") as link:
        await link.fetch(blob, tmp_path / "model")
        receipt = await link.submit(upload("hospital_a", content), tmp_path / "model")
        assert (MODEL_BYTES, MODEL_BYTES) == (
            link._line.traffic.in_files("down"),
            link._line.traffic.in_files("up"),
        )
    assert blob.digest == receipt.digest
    assert content == federation.desk.kept("hospital_a", receipt.key)
    frames = range(0, MODEL_BYTES, convert.FRAME_BYTES)
    assert [(at, min(convert.FRAME_BYTES, MODEL_BYTES - at)) for at in frames] == federation.desk.shown
    moved = federation.server.meter.bytes
    assert (MODEL_BYTES, MODEL_BYTES) == (moved["down", "train"], moved["up", "train"])
    assert 0 < moved["down", "calls"] < 10_000
    assert 0 < moved["up", "calls"] < 10_000


async def test_a_download_that_was_cut_goes_on(
    federation: Federation, proxy: tuple[CuttingProxy, int], tmp_path: Path
) -> None:
    """A line cut at 60 % costs hardly a byte more than an undisturbed one."""
    middle, port = proxy
    content = os.urandom(MODEL_BYTES)
    blob = federation.desk.lay(content)
    async with federation.link("hospital_a", port=port) as link:
        middle.cut("down", CUT_BYTES)
        await link.fetch(blob, tmp_path / "model")
    assert content == (tmp_path / "model").read_bytes()
    assert 1 == middle.cuts
    assert middle.passed["down"] <= MOST_BYTES


async def test_an_upload_that_was_cut_goes_on(
    federation: Federation, proxy: tuple[CuttingProxy, int], tmp_path: Path
) -> None:
    """An upload cut at 60 % is offered again and goes on where it stopped."""
    middle, port = proxy
    content = os.urandom(MODEL_BYTES)
    (tmp_path / "up").write_bytes(content)
    async with federation.link("hospital_a", port=port) as link:
        middle.cut("up", CUT_BYTES)
        receipt = await link.submit(upload("hospital_a", content), tmp_path / "up")
    assert content == federation.desk.kept("hospital_a", receipt.key)
    assert 1 == middle.cuts
    assert middle.passed["up"] <= MOST_BYTES


async def test_what_is_there_is_not_brought_again(federation: Federation, tmp_path: Path) -> None:
    """A file that is complete costs no call, one that is half there costs its other half."""
    content = os.urandom(3 << 20)
    blob = federation.desk.lay(content)
    (tmp_path / "half").write_bytes(content[: 1 << 20])
    (tmp_path / "whole").write_bytes(content)
    async with federation.link("hospital_a") as link:
        await link.fetch(blob, tmp_path / "half")
        await link.fetch(blob, tmp_path / "whole")
        assert 2 << 20 == link._line.traffic.in_files("down")
    assert content == (tmp_path / "half").read_bytes()


async def test_a_download_over_an_old_file(federation: Federation, tmp_path: Path) -> None:
    """When all of it has come its length says so: nothing lies beside it that would have to be read with it."""
    content = os.urandom(3 * WORTH + 5)
    blob, blanks, file = (
        federation.desk.lay(content),
        Blanks(tmp_path / "blanks", most=8 * WORTH),
        tmp_path / "model",
    )
    (tmp_path / "old").write_bytes(b"o" * (4 * WORTH))
    assert blanks.give(tmp_path / "old")
    lay(blanks, file, blob.size)
    assert 2 == len([path for path in tmp_path.iterdir() if path.is_file()])
    async with federation.link("hospital_a") as link:
        await link.fetch(blob, file)
    assert content == file.read_bytes()
    assert [file] == [path for path in tmp_path.iterdir() if path.is_file() and path.name.startswith("model")]


async def test_a_beginning_left_by_a_kill_is_checked_with_the_rest(
    federation: Federation, proxy: tuple[CuttingProxy, int], tmp_path: Path
) -> None:
    """What lay there, what came before a cut and what came after it: one wrong byte in any of them is noticed."""
    middle, port = proxy
    content = os.urandom(12 << 20)
    blob = federation.desk.lay(content)
    (tmp_path / "model").write_bytes(bytes([content[0] ^ 1]) + content[1 : 3 << 20])
    async with federation.link("hospital_a", port=port) as link:
        middle.cut("down", 4 << 20)
        await link.fetch(blob, tmp_path / "model")
        assert 1 == middle.cuts
        assert len(content) + (9 << 20) == link._line.traffic.in_files("down")
    assert content == (tmp_path / "model").read_bytes()


@pytest.mark.parametrize("found", [b"other beginning", b"x" * 5000], ids=["shorter", "longer"])
async def test_a_wrong_beginning_is_thrown_away(federation: Federation, tmp_path: Path, found: bytes) -> None:
    """Bytes that were not the beginning of the file are noticed, and the file is brought whole."""
    content = os.urandom(4000)
    (tmp_path / "model").write_bytes(found)
    async with federation.link("hospital_a") as link:
        await link.fetch(federation.desk.lay(content), tmp_path / "model")
    assert content == (tmp_path / "model").read_bytes()


async def test_an_empty_file_crosses_too(federation: Federation, tmp_path: Path) -> None:
    """A method that shares nothing still has its parcels."""
    (tmp_path / "up").touch()
    async with federation.link("hospital_a") as link:
        await link.fetch(federation.desk.lay(b""), tmp_path / "down")
        await link.submit(upload("hospital_a", b""), tmp_path / "up")
    assert b"" == (tmp_path / "down").read_bytes() == federation.desk.kept("hospital_a", "000001-1-train")


@pytest.mark.parametrize(
    ("changed", "code"), [(b"damagee bytes", "digest"), (b"longer than announced", "too_large")]
)
async def test_other_bytes_than_announced_are_not_kept(
    federation: Federation, tmp_path: Path, changed: bytes, code: str
) -> None:
    """A download whose bytes are not those of its digest is refused, and can be tried anew."""
    blob = federation.desk.lay(b"damaged bytes")
    (federation.desk.folder / blob.digest).write_bytes(changed)
    async with federation.link("hospital_a") as link:
        with pytest.raises(Refused, match=f"^{code}"):
            await link.fetch(blob, tmp_path / "model")
        federation.desk.lay(b"damaged bytes")
        await link.fetch(blob, tmp_path / "model")
    assert b"damaged bytes" == (tmp_path / "model").read_bytes()


async def test_an_upload_of_other_bytes_is_refused(federation: Federation, tmp_path: Path) -> None:
    """An upload whose bytes are not those offered gets no receipt."""
    (tmp_path / "up").write_bytes(b"UPDATE")
    async with federation.link("hospital_a") as link:
        with pytest.raises(Refused, match=r"^digest"):
            await link.submit(upload("hospital_a", b"update"), tmp_path / "up")


async def test_an_upload_over_the_quota_is_refused_before_a_byte(
    federation: Federation, tmp_path: Path
) -> None:
    """What is too large is refused when it is offered."""
    with (tmp_path / "up").open("wb") as file:
        file.truncate(QUOTA + 1)
    offer = upload("hospital_a", b"")
    offer = type(offer)(offer.key, offer.header, type(offer.blob)(offer.blob.digest, QUOTA + 1))
    async with federation.link("hospital_a") as link:
        with pytest.raises(Refused, match=r"^too_large"):
            await link.submit(offer, tmp_path / "up")
        assert 0 == link._line.traffic.in_files("up")


async def test_a_coordinator_without_room_is_not_asked_again_at_once(
    federation: Federation, tmp_path: Path
) -> None:
    """The site that hands in decides how long to wait for room, and then the upload goes on."""
    content = os.urandom(3 << 20)
    offer = upload("hospital_a", content)
    (tmp_path / "up").write_bytes(content)
    make_room, asked = federation.desk.offer, []

    async def refuse_once(site: str, offer: Offer) -> Incoming | Receipt:
        asked.append(site)
        if len(asked) == 1:
            raise Refused("no_room", "the disk is full")
        return await make_room(site, offer)

    federation.desk.offer = refuse_once
    async with federation.link("hospital_a") as link:
        with pytest.raises(Refused, match=r"^no_room"):
            await link.submit(offer, tmp_path / "up")
        assert ["hospital_a"] == asked
        await link.submit(offer, tmp_path / "up")
    assert content == federation.desk.kept("hospital_a", offer.key)


async def test_more_bytes_than_offered_are_not_written(federation: Federation, tmp_path: Path) -> None:
    """A stream that goes on past what was offered is ended, and nothing of the surplus is on disk."""
    offer = upload("hospital_a", b"update")
    (tmp_path / "up").write_bytes(b"update and a surplus")
    async with federation.link("hospital_a") as link:
        assert 0 == await link._offer(offer)
        with pytest.raises(Refused, match=r"^too_large"):
            await link.carrier._store_rest(offer.key, tmp_path / "up", 0)
    assert b"" == federation.desk.kept("hospital_a", offer.key)


async def test_a_stream_ends_whole_and_begins_where_told(federation: Federation, tmp_path: Path) -> None:
    """A stream from a wrong offset, or that ends early, gets no receipt; the next offer says how to go on."""
    offer = upload("hospital_a", b"update")
    (tmp_path / "up").write_bytes(b"upd")
    (tmp_path / "nothing").touch()  # a refusal that meets a frame on its way may be lost
    async with federation.link("hospital_a") as link:
        await link._offer(offer)
        with pytest.raises(Refused, match=r"^wrong_offset"):
            await link.carrier._store_rest(offer.key, tmp_path / "nothing", 2)
        with pytest.raises(Refused, match=r"^too_short"):
            await link.carrier._store_rest(offer.key, tmp_path / "up", 0)
        assert 3 == await link._offer(offer)
        (tmp_path / "up").write_bytes(b"update")
        await link.submit(offer, tmp_path / "up")
    assert b"update" == federation.desk.kept("hospital_a", offer.key)


async def test_a_stream_refused_midway_is_offered_again(federation: Federation, tmp_path: Path) -> None:
    """A refusal that meets a stream of many frames ends in another offer and a receipt."""
    content = os.urandom(16 << 20)
    (tmp_path / "up").write_bytes(content)
    offers: list[int | Receipt] = []
    async with federation.link("hospital_a") as link:

        async def offer_once_wrongly() -> int | Receipt:
            offers.append(await link._offer(upload("hospital_a", content)))
            return offers[-1] if len(offers) > 1 else 2

        await link.carrier.store("000001-1-train", tmp_path / "up", offer_once_wrongly)
    assert [0, 0] == offers
    assert content == federation.desk.kept("hospital_a", "000001-1-train")


async def test_what_lies_beyond_the_offset_is_cut_off(federation: Federation, tmp_path: Path) -> None:
    """The rest of an older, longer file does not end up behind a shorter upload."""
    offer, path = upload("hospital_a", b"update"), tmp_path / "partial"
    path.write_bytes(b"up, and the end of something longer")
    (tmp_path / "up").write_bytes(b"update")

    async def make_room(site: str, offer: Offer) -> Incoming:
        return Incoming(path, 2, offer.blob.size)

    async def confirm(site: str, key: str) -> Receipt:
        return Receipt("run-1", key, site, blob_of(path.read_bytes()).digest)

    federation.desk.offer, federation.desk.stored = make_room, confirm
    async with federation.link("hospital_a") as link:
        assert offer.blob.digest == (await link.submit(offer, tmp_path / "up")).digest


async def test_an_older_stream_of_the_same_upload_is_over(federation: Federation, tmp_path: Path) -> None:
    """A site that offers again after a line that died unseen: the old stream writes nothing more."""
    content = os.urandom(3 << 20)
    offer = upload("hospital_a", content)
    (tmp_path / "up").write_bytes(content)
    async with federation.link("hospital_a") as link:
        await link._offer(offer)
        said = convert.say_store(offer.key, 0)
        metadata = ((convert.STORE_METADATA, said), *link._line.sign("Store", said))
        old = link._line.channel.stream_unary(f"/{convert.BULK}/Store")(metadata=metadata, timeout=10)
        await old.write(content[: 1 << 20])
        assert await link._offer(offer) in (0, 1 << 20)
        # It may have ended before this is written, or while it is.
        with suppress(AioRpcError, asyncio.InvalidStateError):
            await old.write(b"x" * (1 << 20))
        # Ended at once: gRPC may lose the words under a frame that is on its way.
        assert await old.code() is not StatusCode.OK
        assert {"superseded": 1} == federation.server.meter.refusals
        await link.submit(offer, tmp_path / "up")
    assert content == federation.desk.kept("hospital_a", offer.key)


async def test_verification_goes_on_without_the_site(federation: Federation, tmp_path: Path) -> None:
    """A site that is killed after its last byte finds its receipt when it comes back."""
    desk, offer = federation.desk, upload("hospital_a", b"update")
    (tmp_path / "up").write_bytes(b"update")
    desk.may_verify.clear()
    async with federation.link("hospital_a") as link:
        killed = asyncio.create_task(link.submit(offer, tmp_path / "up"))
        await desk.verifying.wait()
        killed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await killed
        again = asyncio.create_task(link.submit(offer, tmp_path / "up"))
        desk.may_verify.set()
        assert offer.blob.digest == (await again).digest
        # Twice: the very first call was said without a session. Of the one that was cut off nothing is known.
        assert 2 * len(b"update") == link._line.traffic.in_files("up")
    assert 1 == desk.verified


async def test_a_silent_stream_is_given_up_by_the_coordinator(federation: Federation) -> None:
    """A site that opens a stream and sends nothing does not hold it for ever."""
    await federation.server.stop(0)
    federation.server = GrpcServer(federation.callers(), stall_seconds=0.05)
    federation.port = await federation.start_control()
    async with federation.link("hospital_a") as link:
        await link._offer(upload("hospital_a", b"update"))
        said = convert.say_store("000001-1-train", 0)
        metadata = ((convert.STORE_METADATA, said), *link._line.sign("Store", said))
        silent = link._line.channel.stream_unary(f"/{convert.BULK}/Store")(metadata=metadata, timeout=10)
        assert "stalled" == await silent.details()


async def test_a_silent_stream_is_given_up_by_the_site(
    federation: Federation, proxy: tuple[CuttingProxy, int], tmp_path: Path
) -> None:
    """A line on which nothing moves any more, though it is not closed, ends a download in time."""
    middle, port = proxy
    blob = federation.desk.lay(os.urandom(8 << 20))
    hasty = Patience(attempts=1, stall_seconds=0.2)
    async with federation.link("hospital_a", port=port, patience=hasty) as link:
        await link.leave()
        middle.freeze("down", 4 << 20)
        with pytest.raises(Unreachable, match="nothing moved"):
            await link.fetch(blob, tmp_path / "model")
    assert 0 < (tmp_path / "model").stat().st_size < 4 << 20


async def test_little_is_on_its_way_to_a_site_that_does_not_read(federation: Federation) -> None:
    """What a broken line would lose, and a site would hold in memory, stays small however fast the line once was."""
    blob, read = federation.desk.lay(os.urandom(MODEL_BYTES)), 0
    async with federation.link("hospital_a") as link:
        request = convert.say_fetch(blob.digest, 0)
        await link.leave()  # the first call of a line begins its session
        signed = link._line.sign("Fetch", request)
        stream = link._line.channel.unary_stream(f"/{convert.BULK}/Fetch")(
            request, metadata=signed, timeout=30
        )
        while read < CUT_BYTES:
            read += len(await stream.read())
        await _let_others_run(link)
        assert federation.server.meter.bytes["down", "train"] - read <= UNREAD_BYTES
        stream.cancel()


async def test_little_is_on_its_way_to_a_coordinator_that_does_not_read(
    federation: Federation,
    proxy: tuple[CuttingProxy, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed one would have lost it: on the line there are less than two frames, and what TLS adds to all."""
    moved, read, go_on = federation.server.meter.bytes, bulk._Counted.__anext__, asyncio.Event()
    stands, (middle, port) = asyncio.Event(), proxy

    async def read_until_it_stands(frames: AsyncIterator[bytes]) -> bytes:
        if moved["up", "train"] >= CUT_BYTES:
            stands.set()
            await go_on.wait()
        return await read(frames)

    monkeypatch.setattr(bulk._Counted, "__anext__", read_until_it_stands)
    content = os.urandom(MODEL_BYTES)
    (tmp_path / "up").write_bytes(content)
    async with federation.link("hospital_a", port=port) as link:
        upload_ = asyncio.create_task(link.submit(upload("hospital_a", content), tmp_path / "up"))
        await stands.wait()
        await _let_others_run(link)
        unread = middle.passed["up"] - moved["up", "train"] - link._line.traffic.crossed()["up", CALLS]
        assert unread <= 2 * convert.FRAME_BYTES + CUT_BYTES // 100
        go_on.set()
        await upload_


async def test_trying_has_a_limit(federation: Federation, tmp_path: Path) -> None:
    """With the coordinator gone, a transfer ends as unreachable; what had arrived stays for later."""
    blob = federation.desk.lay(b"whole file")
    (tmp_path / "model").write_bytes(b"whole")
    async with federation.link("hospital_a") as link:
        await federation.server.stop(0)
        with pytest.raises(Unreachable, match="stands at 5 bytes"):
            await link.fetch(blob, tmp_path / "model")
    assert b"whole" == (tmp_path / "model").read_bytes()


async def _let_others_run(link: GrpcLink) -> None:
    """Whatever may still flow, flows while some calls go to and fro on the same line."""
    for _ in range(100):
        await link.leave()
