"""Who calls and who answers, where a proxy ends TLS and sees everything inside."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import aio

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import Unreachable
from pfl_common.errors import Refused
from pfl_common.identity import Authority
from pfl_common.spec.run import Description
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_server.envelopes.sealed import call_book
from pfl_server.network import rpc
from pfl_server.network.rpc import Callers
from pfl_server.network.server import GrpcServer
from tests.network.federation import HASTY, Federation
from tests.network.file_desk import train, upload
from tests.network.opening_proxy import OpeningProxy

DIGITS = Description((1, 28, 28), ("0", "1"), 120)


def test_certificates_of_ten_thousand_sites_are_read_once() -> None:
    """They call in turn: with room for fewer, each would be forgotten just before its next call."""
    assert rpc._read_peer.cache_parameters()["maxsize"] > 10_000


@pytest.fixture
async def middle(federation: Federation, tmp_path: Path) -> AsyncIterator[tuple[OpeningProxy, GrpcLink]]:
    """A coordinator behind a proxy that ends TLS, and a site's line through it."""
    await federation.server.stop(0)
    callers = Callers(call_book(federation.authority, now=federation.now), proxied=True)
    federation.server = GrpcServer(callers)
    port = await federation.start_control()
    own = Authority.open_or_create(tmp_path / "proxy", now=federation.now)
    proxy = OpeningProxy(tmp_path, port, federation_ca=federation.authority.ca_pem, own=own)
    keyring = federation.keyring("hospital_a")
    async with GrpcLink(
        f"localhost:{await proxy.start()}", keyring, roots=own.ca_pem, patience=HASTY
    ) as link:
        yield proxy, link
    await proxy.stop()


async def test_a_task_passes(
    federation: Federation, middle: tuple[OpeningProxy, GrpcLink], tmp_path: Path
) -> None:
    """Control calls, a download and an upload; the coordinator knows the site by its signatures alone."""
    _, link = middle
    desk = federation.desk
    joined = await link.join(DIGITS)
    assert joined is not None
    content = os.urandom(3 << 20)
    work = train(desk.lay(content))
    desk.assign("hospital_a", work)
    assert work == await link.next_task(())
    await link.fetch(work.blob, tmp_path / "down")
    offer = upload("hospital_a", content)
    await link.submit(offer, tmp_path / "down")
    assert content == desk.kept("hospital_a", offer.key)
    assert {"hospital_a": DIGITS} == desk.joined


async def test_a_changed_call_is_not_heard(
    federation: Federation, middle: tuple[OpeningProxy, GrpcLink]
) -> None:
    """The proxy puts another word into a site's mouth: refused, and nothing happens."""
    proxy, link = middle
    await link.leave()
    proxy.change = lambda piece: piece.replace(b"diverged", b"policy\x00\x00")
    with pytest.raises(Refused, match="did not sign"):
        await link.decline("000001-1-train", "diverged", "")
    assert [("leave", "hospital_a")] == federation.desk.said


async def test_a_changed_answer_is_not_believed(
    federation: Federation, middle: tuple[OpeningProxy, GrpcLink]
) -> None:
    """The proxy hands out another task than the coordinator did: the site does not take it."""
    proxy, link = middle
    federation.desk.assign("hospital_a", train(federation.desk.lay(b"shared state")))
    proxy.change = lambda piece: piece.replace(b"fingerprint", b"fingerprinT")
    with pytest.raises(Refused, match="did not sign"):
        await link.next_task(())


async def test_a_call_of_a_stranger(federation: Federation, middle: tuple[OpeningProxy, GrpcLink]) -> None:
    """Without a signature nobody is a site, whatever passes TLS; a call heard before is no call either."""
    _, link = middle
    await link.leave()
    method = link._line.channel.unary_unary(f"/{convert.COORDINATOR}/Leave")
    body = pb.LeaveRequest().SerializeToString()
    heard = link._line.sign("Leave", body)
    await method(body, metadata=heard, timeout=10)
    for metadata in ((), heard):
        with pytest.raises(aio.AioRpcError) as refused:
            await method(body, metadata=metadata, timeout=10)
        assert "seal" == refused.value.details()
    assert 2 == len(federation.desk.said)


async def test_a_restarted_coordinator_gives_another_session(federation: Federation) -> None:
    """A line goes on with a coordinator that knows nothing of the session: the site notices nothing."""
    async with federation.link("hospital_a") as link:
        await link.leave()
        await federation.server.stop(0)
        federation.server = GrpcServer(federation.callers())
        await federation.start_control(federation.port)
        for _ in range(20):
            try:
                await link.leave()
                break
            except Unreachable:
                continue  # the channel notices in its own time that the port is back
    assert 2 == len(federation.desk.said)


async def test_a_certificate_and_a_signature_of_two_sites(federation: Federation) -> None:
    """A site cannot speak for another one by its own certificate."""
    async with federation.link("hospital_a") as link, federation.link("hospital_b") as other:
        link._line.signer, other._line.signer = other._line.signer, link._line.signer
        with pytest.raises(Exception, match="signed as 'hospital_b'"):
            await link.leave()
    assert [] == federation.desk.said
