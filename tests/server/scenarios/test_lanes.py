"""Uploads one at a time, whichever site calls and goes: what an Offer has begun is over before the next one begins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.messages import Offer
from pfl_common.spec.run import ClientId
from pfl_server.network.bulk import Bulk
from pfl_server.network.requests import Gate
from pfl_server.network.rpc import Callers
from pfl_server.sites.service import Incoming, Service
from pfl_server.telemetry.counters import Meter
from tests.network.file_desk import upload


class SlowDesk:
    """Takes as long to make room as it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.begun, self.ended = folder, 0, 0
        self.asked, self.may_end = asyncio.Event(), asyncio.Event()
        self.refuses = False

    async def offer(self, site: ClientId, offer: Offer) -> Incoming:
        self.begun += 1
        self.asked.set()
        await self.may_end.wait()
        self.ended += 1
        if self.refuses:
            raise Refused("no_room", "full")
        return Incoming(self.folder / offer.key, self.ended, offer.blob.size)


@pytest.fixture
def desk(tmp_path: Path) -> SlowDesk:
    return SlowDesk(tmp_path)


@pytest.fixture
def bulk(desk: SlowDesk) -> Bulk:
    return Bulk(cast(Service, SimpleNamespace(desk=desk)), Gate(cast(Callers, None), Meter()))


async def begin(bulk: Bulk, desk: SlowDesk, offer: Offer) -> asyncio.Task[object]:
    """An Offer that the desk is at work on."""
    desk.asked.clear()
    call: asyncio.Task[object] = asyncio.create_task(bulk.offer("a", offer))
    await desk.asked.wait()
    return call


async def test_an_offer_whose_call_is_broken_off_is_done_before_the_next(bulk: Bulk, desk: SlowDesk) -> None:
    """A thread that makes room cannot be called back: the next Offer would share its file with it."""
    offer = upload("a", b"update")
    call = await begin(bulk, desk, offer)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    again = asyncio.create_task(bulk.offer("a", offer))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (1, 0) == (desk.begun, desk.ended)
    desk.may_end.set()
    assert 2 == await again, "the offset is that of the second"


async def test_another_upload_does_not_wait(bulk: Bulk, desk: SlowDesk) -> None:
    """Only the same upload of the same site has one lane."""
    calls = [await begin(bulk, desk, upload("a", b"update", round=number)) for number in (1, 2)]
    assert (2, 0) == (desk.begun, desk.ended)
    desk.may_end.set()
    assert {1, 2} == set(await asyncio.gather(*calls))


async def test_nothing_is_kept_of_what_was_refused(bulk: Bulk, desk: SlowDesk) -> None:
    """A caller that offers under a thousand names fills no memory with them."""
    desk.refuses = True
    desk.may_end.set()
    for number in range(5):
        offer = upload("a", b"update", round=number)
        with pytest.raises(Refused):
            await bulk.offer("a", offer)
    with pytest.raises(Refused, match="full"):
        await bulk.take_whole("a", upload("a", b"update"), b"update")
    assert {} == bulk._lanes


@pytest.mark.parametrize(("content", "code"), [(b"updat", "too_short"), (b"updates", "too_large")])
async def test_an_upload_in_one_call_that_is_not_as_long_as_offered(
    bulk: Bulk, desk: SlowDesk, content: bytes, code: str
) -> None:
    """None of it is written where another may go on, and nothing is kept of it."""
    desk.may_end.set()
    with pytest.raises(Refused) as refused:
        await bulk.take_whole("a", upload("a", b"update"), content)
    assert (code, {}) == (refused.value.code, bulk._lanes)
    assert [] == list(desk.folder.iterdir())
