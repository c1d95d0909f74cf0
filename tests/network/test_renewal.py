"""What the coordinator shows is renewed while it runs: lines that are open stay, new ones see the new certificate."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from grpc import aio

from pfl_client.connection.grpc_link import GrpcLink
from pfl_common.identity import Lives
from pfl_common.spec.run import Description
from pfl_server.network import renewal
from pfl_server.network.renewal import Renewal
from pfl_server.network.shown_identity import ShownIdentity
from tests.network.federation import HASTY, Federation

DIGITS = Description((1, 28, 28), ("0", "1"), 120)


def test_what_is_shown_already_is_not_shown_anew(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer makes gRPC exchange what open handshakes use: hundreds of callers at once ended the process by it."""
    asked = []
    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", lambda *words, **_: asked.append(words))
    first, second = (federation.authority.server_certificate([], now=federation.now) for _ in range(2))
    shown = ShownIdentity(first)
    shown.credentials(require_certificate=False)
    ((begun, find_new),) = asked
    assert begun is not None
    assert [None, None] == [find_new(), find_new()]
    shown.exchange(second)
    new = find_new()
    assert new is not None and new is not begun
    assert find_new() is None


async def test_what_is_shown_is_asked_for_at_each_new_line(federation: Federation) -> None:
    """A pair that was exchanged before the port was opened is the one that it begins with."""
    first, second = (federation.authority.server_certificate([], now=federation.now) for _ in range(2))
    shown = ShownIdentity(first)
    shown.exchange(second)
    server = aio.server()
    port = server.add_secure_port("127.0.0.1:0", shown.credentials(require_certificate=False))
    await server.start()
    for pair in (second, first):
        shown.exchange(pair)
        assert pair.certificate_pem.strip() == (await asyncio.to_thread(shown_at, port)).encode().strip()
    await server.stop(0)


class Showing:
    """Has a card, and is shown certificates."""

    def __init__(self) -> None:
        self.card, self.shown = b"", []

    def show(self, pair: object, ca_pem: bytes) -> None:
        self.shown.append((pair, ca_pem))


def shown_at(port: int) -> str:
    """The certificate that a new line sees."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


async def test_a_port_shows_another_certificate_without_a_restart(federation: Federation) -> None:
    """The line that was open goes on with its session; one that is opened now sees the new one."""
    async with federation.link("hospital_a") as link:
        await link.join(DIGITS)
        before = await asyncio.to_thread(shown_at, federation.enrolment_port)
        parts = Renewal(federation.authority, [], ports=(federation.server, federation.office))
        parts.renew()
        for port in (federation.port, federation.enrolment_port):
            seen = await asyncio.to_thread(shown_at, port)
            assert seen.encode().strip() == parts.pair.certificate_pem.strip()
            assert seen != before
        await link.join(DIGITS)
    async with federation.link("hospital_b") as link:
        await link.join(DIGITS)


async def test_it_is_renewed_after_two_thirds(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificate, card and the operator's are made anew when the shortest of their lives says so, and not before."""
    monkeypatch.setattr(renewal, "LOOK_SECONDS", 0.0)
    federation.authority.lives = Lives(server=timedelta(seconds=30))
    clock, port, published = [federation.now], Showing(), asyncio.Event()
    parts = Renewal(
        federation.authority, ["a.example.org"], cards=(port,), ports=(port,), clock=lambda: clock[0]
    )
    first = parts.pair, parts.operator, port.card
    parts.publish = published.set
    keeping = asyncio.create_task(parts.keep())
    clock[0] += timedelta(seconds=19)
    for _ in range(100):
        await asyncio.sleep(0)
    assert first == (parts.pair, parts.operator, port.card)
    clock[0] += timedelta(seconds=2)
    await asyncio.wait_for(published.wait(), 10)
    assert not set(first) & {parts.pair, parts.operator, port.card}
    assert 2 == len(port.shown)
    keeping.cancel()


async def test_a_new_authority_is_shown_at_once_and_its_day_comes(
    federation: Federation, tmp_path: Path
) -> None:
    """A change is not waited for; on the day that was said the old authority is trusted no more, by itself."""
    clock, port, published = [federation.now], Showing(), asyncio.Event()
    parts = Renewal(federation.authority, [], ports=(port,), clock=lambda: clock[0])
    parts.publish = published.set
    keeping = asyncio.create_task(parts.keep())
    day = federation.now + timedelta(days=3)
    federation.authority.rotate(now=federation.now, until=day)
    for wanted in (2, 1):
        parts.change()
        await asyncio.wait_for(published.wait(), 10)
        assert wanted == port.shown[-1][1].count(b"BEGIN CERTIFICATE")
        published.clear()
        clock[0] = day
    assert not federation.authority.rotating
    keeping.cancel()


async def test_a_renewal_during_calls_breaks_none(federation: Federation) -> None:
    """A site that renews while it calls has a new line with the new certificate, and no call of it is lost."""
    keyring = federation.keyring("hospital_a", since=federation.now - timedelta(days=25))
    async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
        await link.join(DIGITS)
        before, line = keyring.certificate_pem, link._line.channel
        calls = [asyncio.create_task(link.join(DIGITS)) for _ in range(20)]
        assert await link.renew()
        assert all(await asyncio.gather(*calls))
        assert before != keyring.certificate_pem
        assert line is not link._line.channel
        await link.join(DIGITS)
