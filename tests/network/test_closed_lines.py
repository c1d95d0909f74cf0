"""A line that closes under a call is noticed at once, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pfl_client.connection import channel
from pfl_common.models import catalogue
from pfl_common.spec.messages import SiteStatus
from pfl_server.network import rpc
from pfl_server.sites.fleet import Fleet
from pfl_server.store.run_store import Books
from tests.network.federation import Federation
from tests.server.support.federation import build_spec, build_tiny, open_run

KEY = "000001-1-train"


@pytest.fixture
async def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Books]:
    monkeypatch.setitem(catalogue._BACKBONES, "tiny", build_tiny)
    books = open_run(tmp_path / "run", build_spec(sites=("hospital_a", "hospital_b")))
    yield books
    books.journal.close()


async def test_a_site_that_hangs_up_while_it_waits_for_work(federation: Federation, books: Books) -> None:
    """The coordinator knows by the closed line, long before the lease ends; heard again it is here again."""
    fleet = Fleet(books)
    federation.desk.next_task = fleet.next_task
    link = federation.link("hospital_a")
    asking = asyncio.create_task(link.next_task(()))
    await until(lambda: "waiting" == line(fleet).doing)
    await link.close()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: "away" == line(fleet).state)
    assert ("away", "away, its line is closed") == (line(fleet).phase, line(fleet).doing)
    assert ((1, 1, 0), ("hospital_a", "hospital_b")) == (fleet.heard(), fleet.present())
    async with federation.link("hospital_a") as again:
        asking = asyncio.create_task(again.next_task(()))
        await until(lambda: ("here", "waiting") == (line(fleet).state, line(fleet).doing))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_a_site_that_hangs_up_at_work(federation: Federation) -> None:
    """Its heartbeat is held meanwhile: one call is always open. A heartbeat for nothing is answered at once."""
    desk = federation.desk
    desk.let_go.clear()
    async with federation.link("hospital_a") as other:
        assert not await other.heartbeat(KEY, 100)
    assert [] == desk.lingering
    link = federation.link("hospital_a")
    beating = asyncio.create_task(link.heartbeat(KEY, 7))
    await until(lambda: bool(desk.lingering))
    await link.close()
    await asyncio.gather(beating, return_exceptions=True)
    await until(lambda: [("hospital_a", KEY)] == desk.hung_up)
    assert [("hospital_a", KEY, 1.0)] == desk.lingering


def line(fleet: Fleet) -> SiteStatus:
    return fleet.status().sites[0]


async def until(event: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not event():  # noqa: ASYNC110  # the other end of a socket goes unannounced
            await asyncio.sleep(0.01)


def test_pings_are_taken_as_often_as_they_are_sent() -> None:
    """Also on a line that has no call: a server that thinks them too many ends the line after the third."""
    sent, taken = dict(channel._OPTIONS), dict(rpc.OPTIONS)
    assert (0, 1) == (sent["grpc.http2.max_pings_without_data"], sent["grpc.keepalive_permit_without_calls"])
    assert 1 == taken["grpc.keepalive_permit_without_calls"]
    assert sent["grpc.keepalive_time_ms"] > taken["grpc.http2.min_ping_interval_without_data_ms"]
