"""Small parcels go with their control calls: no stream is opened, and nothing else is different."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pfl_client.connection.bulk import Carrier
from pfl_client.connection.link import Unreachable
from pfl_common.errors import Refused
from pfl_common.spec.messages import Blob
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_common.wire.convert import BESIDE_BYTES
from pfl_server.network.bulk import Bulk
from tests.network.federation import Federation
from tests.network.file_desk import train, upload


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams that were opened."""
    opened: list[str] = []

    def noting(name: str) -> None:
        stream = getattr(Carrier, name)

        async def note(carrier: Carrier, *words: object, **named: object) -> object:
            opened.append(name)
            return await stream(carrier, *words, **named)

        monkeypatch.setattr(Carrier, name, note)

    noting("_fetch_rest")
    noting("_store_rest")
    return opened


@pytest.mark.parametrize("size", [BESIDE_BYTES, BESIDE_BYTES + 1])
async def test_a_small_round_needs_no_stream(
    federation: Federation, tmp_path: Path, streams: list[str], size: int
) -> None:
    """Both ways; a byte more and it takes the other way. Its bytes are counted as a model's, and once."""
    content = os.urandom(size)
    blob = federation.desk.lay(content)
    federation.desk.assign("hospital_a", train(blob))
    async with federation.link("hospital_a") as link:
        assert train(blob) == await link.next_task(())
        await link.fetch(blob, tmp_path / "model", kind="train")
        receipt = await link.submit(upload("hospital_a", content), tmp_path / "model")
        assert (size, size) == (link._line.traffic.in_files("down"), link._line.traffic.in_files("up"))
        crossed = link._line.traffic.crossed()
    assert content == (tmp_path / "model").read_bytes() == federation.desk.kept("hospital_a", receipt.key)
    assert ["_fetch_rest", "_store_rest"] * (size > BESIDE_BYTES) == streams
    moved = federation.server.meter.bytes
    assert (size, size) == (moved["down", "train"], moved["up", "train"])
    for way in ("down", "up"):
        assert 0 < moved[way, "calls"] < 4000
        assert 0 < crossed[way, "calls"] < 4000
    assert [("hospital_a", blob.digest)] == federation.desk.sent


async def test_what_came_beside_needs_no_file(federation: Federation) -> None:
    """It is handed over once; other bytes than the announced ones are not."""
    blob, other = federation.desk.lay(b"the bytes"), Blob("0" * 64, 9)
    federation.desk.assign("hospital_a", train(blob))
    async with federation.link("hospital_a") as link:
        await link.next_task(())
        assert [b"", b"the bytes", b""] == [link.take_beside(one) for one in (other, blob, blob)]


async def test_other_bytes_beside_are_not_taken(
    federation: Federation, tmp_path: Path, streams: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what has the announced digest; the stream then brings it."""
    monkeypatch.setattr(Bulk, "send_beside", lambda *_: b"other bytes")
    blob = federation.desk.lay(b"the bytes")
    federation.desk.assign("hospital_a", train(blob))
    async with federation.link("hospital_a") as link:
        await link.next_task(())
        await link.fetch(blob, tmp_path / "model")
    assert b"the bytes" == (tmp_path / "model").read_bytes()
    assert ["_fetch_rest"] == streams


async def test_a_line_that_failed_carries_streams(
    federation: Federation, tmp_path: Path, streams: list[str]
) -> None:
    """It may be too slow for an answer with a parcel in it, and would fail for ever; streams go on where they broke."""
    blob, desk = federation.desk.lay(b"the bytes"), federation.desk
    asked = desk.next_task
    async with federation.link("hospital_a") as link:
        desk.next_task = lambda *words, **named: {}["a fault"]
        with pytest.raises(Unreachable):
            await link.next_task(())
        desk.next_task = asked
        desk.assign("hospital_a", train(blob))
        await link.next_task(())
        await link.fetch(blob, tmp_path / "model")
        await link.submit(upload("hospital_a", b"the bytes"), tmp_path / "model")
    assert ["_fetch_rest", "_store_rest"] == streams


async def test_an_upload_whose_first_offer_failed_follows_in_a_stream(
    federation: Federation, tmp_path: Path, streams: list[str]
) -> None:
    """The very same upload, once."""
    desk, tried = federation.desk, []
    offered = desk.offer
    (tmp_path / "up").write_bytes(b"update")

    async def fail_once(site: str, offer: object) -> object:
        tried.append(site)
        return {}["a fault"] if len(tried) == 1 else await offered(site, offer)

    desk.offer = fail_once
    async with federation.link("hospital_a") as link:
        receipt = await link.submit(upload("hospital_a", b"update"), tmp_path / "up")
    assert b"update" == desk.kept("hospital_a", receipt.key)
    assert (2, 1, ["_store_rest"]) == (len(tried), desk.verified, streams)


async def test_too_much_beside_an_offer_is_refused(federation: Federation) -> None:
    """And what is not as long as was offered: nothing is verified, let alone counted."""
    async with federation.link("hospital_a") as link:
        for size, sent, code in (
            (BESIDE_BYTES + 1, BESIDE_BYTES + 1, "too_large"),
            (9, 8, "too_short"),
            (9, 10, "too_large"),
        ):
            request = convert.say_offer(upload("hospital_a", bytes(size)))
            request.content = bytes(sent)
            with pytest.raises(Refused) as refused:
                await link._ask("Offer", request, pb.OfferAnswer)
            assert code == refused.value.code
    assert 0 == federation.desk.verified
