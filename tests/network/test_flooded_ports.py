"""Strangers and sites that flood the coordinator's ports are bounded, and honest sites go on beside them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from grpc import aio

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import Unreachable
from pfl_client.onboarding.enrolment import enrol_invited
from pfl_common.errors import Refused
from pfl_common.identity import Keyring
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from pfl_server.network import enrolment_port, server
from pfl_server.network.caller_limits import MOST_CALLS, MOST_STREAMS
from pfl_server.network.server import GrpcServer
from tests.hostile.raw_line import (
    Idle,
    RawLine,
    connect_idly,
    hang_up,
    message,
    open_raw,
    wait_closed,
)
from tests.network.federation import HASTY, Federation
from tests.network.file_desk import upload

JOIN = f"/{convert.COORDINATOR}/Join"
ENROL = f"/{convert.ENROLMENT}/Enrol"
STORE, FETCH = f"/{convert.BULK}/Store", f"/{convert.BULK}/Fetch"
Call = tuple[RawLine, int]
LINES = 8
SOON = 3.0
"""Seconds; those of a handshake are more."""
IDLE = 40


@pytest.fixture
async def idle() -> AsyncIterator[list[Idle]]:
    """Connections that end with the test."""
    lines: list[Idle] = []
    yield lines
    hang_up(lines)


@pytest.fixture
async def raw() -> AsyncIterator[AsyncExitStack]:
    """Lines without manners, which end with the test too."""
    async with AsyncExitStack() as lines:
        yield lines


def keys_of(federation: Federation, site: str) -> Path:
    """A site's key and certificate in one file."""
    keyring, path = federation.keyring(site), federation.folder / f"{site}.pem"
    path.write_bytes(keyring.key_pem + keyring.certificate_pem)
    return path


async def line_of(raw: AsyncExitStack, federation: Federation, site: str, **named: int) -> RawLine:
    """One more raw line of a site."""
    line = await open_raw(
        federation.port, federation.authority.ca_pem, keys=keys_of(federation, site), **named
    )
    raw.push_async_callback(line.close)
    return line


async def start_again(federation: Federation, *, lines: int = LINES, **named: float) -> None:
    """The sites' port with other limits."""
    await federation.server.stop(0)
    federation.server = GrpcServer(federation.callers(), **named)
    federation.port = await federation.server.start(
        federation.desk,
        host="127.0.0.1",
        port=0,
        pair=federation.pair,
        ca_pem=federation.authority.ca_pem,
        lines=lines,
    )


async def wait_over(calls: list[Call], number: int) -> list[bytes]:
    """The last words to so many of these calls, as soon as they are over; to fewer, if it takes too long."""
    waiting = {asyncio.create_task(line.wait_over(call, seconds=60)): call for line, call in calls}
    pending, clock = set(waiting), asyncio.get_running_loop().time
    end = clock() + SOON
    while len(waiting) - len(pending) < number and clock() < end:
        _, pending = await asyncio.wait(pending, timeout=end - clock(), return_when=asyncio.FIRST_COMPLETED)
    for one in pending:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return [line.over[call] for line, call in calls if call in line.over]


# -- honest sites, all at once


async def test_calls_of_a_thousand_sites_in_one_moment_are_answered(federation: Federation) -> None:
    """When a run begins each of them asks for work: gRPC by itself would end some of more than a thousand unheard."""
    await start_again(federation, lines=3 * 1000)
    names = [f"site_{number:03}" for number in range(100)]
    async with AsyncExitStack() as lines:
        links = [await lines.enter_async_context(federation.link(name)) for name in names]
        for link in links:
            await link.leave()  # the first call of a line begins its session
        answers = [link.heartbeat("000001-1-train", 1) for link in links for _ in range(MOST_CALLS - 1)]
        assert [True] * len(answers) == await asyncio.gather(*answers)


# -- connections


async def test_idle_connections_beyond_the_limit_are_closed(federation: Federation, idle: list[Idle]) -> None:
    """At once, at the sites' port; the line of a site that was there before goes on."""
    await start_again(federation)
    async with federation.link("hospital_a") as link:
        assert await link.heartbeat("000001-1-train", 1)
        idle += await connect_idly(federation.port, IDLE)
        assert await wait_closed(idle, LINES - 1, SOON) < LINES
        assert await link.heartbeat("000001-1-train", 2)


async def test_idle_connections_to_the_enrolment_port_are_closed_too(
    federation: Federation, idle: list[Idle]
) -> None:
    """It is open to everybody, and has a limit of its own."""
    await federation.office.stop(0)
    port = await federation.office.start(host="127.0.0.1", port=0, pair=federation.pair, lines=LINES)
    idle += await connect_idly(port, IDLE)
    assert await wait_closed(idle, LINES, SOON) <= LINES


async def test_the_operator_gets_the_first_connection_that_is_free(
    federation: Federation, idle: list[Idle]
) -> None:
    """Whoever fills the port does not keep its operator out: the line is dialled until one is let in."""
    await start_again(federation)
    idle += await connect_idly(federation.port, IDLE)
    await wait_closed(idle, LINES, SOON)
    told, refused = list[str](), asyncio.Event()

    def tell(words: str) -> None:
        told.append(words)
        refused.set()

    async with federation.operator(tell=tell) as operator:
        asked = asyncio.create_task(operator.stop())
        await refused.wait()
        hang_up(idle)
        await asked
    assert federation.desk.stopped
    assert [
        "the coordinator's port closes the line at once, as a full one does: dialling again for 60 s"
    ] == told


@pytest.mark.parametrize("of", ["sites", "enrolment"])
async def test_a_connection_without_a_handshake_makes_room(
    federation: Federation, idle: list[Idle], monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Who says nothing is gone after a while, and a site finds a place that all were taken from before."""
    module = server if of == "sites" else enrolment_port
    hasty = {"grpc.server_handshake_timeout_ms": 300}
    monkeypatch.setattr(module, "OPTIONS", tuple((name, hasty.get(name, v)) for name, v in module.OPTIONS))
    if of == "sites":
        await start_again(federation)
        port = federation.port
    else:
        await federation.office.stop(0)
        port = await federation.office.start(host="127.0.0.1", port=0, pair=federation.pair, lines=LINES)
    idle += await connect_idly(port, LINES)
    assert 0 == await wait_closed(idle, 0)


# -- enrolment


async def test_calls_without_a_message_do_not_deny_enrolment(
    federation: Federation, raw: AsyncExitStack, tmp_path: Path
) -> None:
    """Four times as many as were once answered at a time: a site that is invited comes in beside them."""
    lines = [await open_raw(federation.enrolment_port, federation.authority.ca_pem) for _ in range(64)]
    for line in lines:
        raw.push_async_callback(line.close)
        for _ in range(2):
            line.begin(ENROL)
    invitation = federation.ledger.invite("hospital_a", federation.now, addresses=federation.addresses)
    await enrol_invited(Keyring.open(tmp_path / "keys"), invitation, patience=HASTY)
    assert not any(line.over for line in lines), "they are still waited for"


@pytest.mark.parametrize("sent", [b"", message(b"half", size=4000)], ids=["nothing", "half"])
async def test_a_message_that_does_not_come_ends_its_call(
    federation: Federation, raw: AsyncExitStack, sent: bytes
) -> None:
    """At both ports; it is counted and said who it was."""
    federation.office.body_seconds = 0.05
    await start_again(federation, body_seconds=0.05)
    stranger = await open_raw(federation.enrolment_port, federation.authority.ca_pem)
    raw.push_async_callback(stranger.close)
    site = await line_of(raw, federation, "hospital_a")
    for line, path in ((stranger, ENROL), (site, JOIN), (site, FETCH)):
        call = line.begin(path)
        if sent:
            line.send(call, sent)
        await line.wait_over(call)
        assert b"stalled" in line.over[call]
    assert {"stalled": 1} == federation.office.meter.refusals
    assert {"stalled": 2} == federation.server.meter.refusals


# -- long messages


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("NextTask", pb.NextTaskRequest(marks=[pb.Mark()] * 500_000).SerializeToString()),
        ("Report", b"\x12\x02\x0a\x00" * 250_000),
        ("Heartbeat", pb.HeartbeatRequest(key="k" * 1_000_000).SerializeToString()),
    ],
    ids=["marks", "scores", "key"],
)
async def test_a_long_message_is_refused_unread(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, call: str, body: bytes
) -> None:
    """A megabyte of nothing takes no longer than any other refusal, and nobody begins to parse it."""
    parsed = []
    monkeypatch.setattr("pfl_server.network.requests.read_request", lambda *words: parsed.append(words))
    async with federation.link("hospital_a") as link:
        method = link._line.channel.unary_unary(f"/{convert.COORDINATOR}/{call}")
        began = time.perf_counter()
        with pytest.raises(aio.AioRpcError) as refused:
            await method(body, metadata=link._line.sign(call, body), timeout=10)
        assert time.perf_counter() - began < 1.0
    assert "too_large" == refused.value.details()
    assert [] == parsed


async def test_a_message_that_no_call_is_as_long_as(federation: Federation) -> None:
    """Two million empty marks are not even taken in; the site hears why, and does not try for ever."""
    marks = pb.NextTaskRequest(marks=[pb.Mark()] * 2_000_000)
    async with federation.link("hospital_a") as link:
        with pytest.raises(Refused, match=r"^too_large: .*larger than max"):
            await link._ask("NextTask", marks, pb.NextTaskAnswer)
        assert await link.heartbeat("000001-1-train", 1)


# -- many calls of one site


async def test_half_sent_messages_of_one_site_are_few(federation: Federation, raw: AsyncExitStack) -> None:
    """On however many lines: what is more is refused before it is read, and another site does not notice."""
    lines = [await line_of(raw, federation, "hospital_x") for _ in range(3)]
    calls = [(line, line.begin(JOIN)) for line in lines for _ in range(12)]
    for line, call in calls:
        line.send(call, message(bytes(1000), size=1_000_000))
    async with federation.link("hospital_a") as link:
        assert await link.heartbeat("000001-1-train", 1)
    refused = await wait_over(calls, len(calls) - MOST_CALLS)
    assert len(refused) == len(calls) - MOST_CALLS == federation.server.meter.refusals["too_many"]
    assert all(b"too_many" in words for words in refused)


# -- transfers


async def begin_stores(
    federation: Federation, raw: AsyncExitStack, link: GrpcLink, *, number: int, sent: bytes
) -> list[Call]:
    """So many streams of one upload that was offered, each on a line that takes a dozen."""
    offer = upload(link._keyring.name, bytes(1 << 20))
    await link._offer(offer)
    calls: list[Call] = []
    for place in range(number):
        if place % 12 == 0:
            line = await line_of(raw, federation, link._keyring.name)
        said = convert.say_store(offer.key, 0)
        calls.append(
            (line, line.begin(STORE, dict(((convert.STORE_METADATA, said), *link._line.sign("Store", said)))))
        )
        line.send(calls[-1][1], sent)
    return calls


async def test_one_upload_has_one_stream(federation: Federation, raw: AsyncExitStack) -> None:
    """A second Store of the same upload ends the first at once, which then holds no frame in memory."""
    async with federation.link("hospital_a") as link:
        calls = await begin_stores(federation, raw, link, number=60, sent=message(bytes(1000), size=1 << 20))
        over = await wait_over(calls, len(calls) - 1)
    assert len(calls) - 1 == len(over)
    assert all(b"superseded" in words or b"too_many" in words for words in over)


async def test_empty_frames_are_a_stall(federation: Federation) -> None:
    """A stream that moves nothing is given up, however many frames it has; one that moves is not."""
    await start_again(federation, stall_seconds=0.3)
    async with federation.link("hospital_a") as link:
        await link._offer(upload("hospital_a", b"update"))
        said = convert.say_store("000001-1-train", 0)
        metadata = ((convert.STORE_METADATA, said), *link._line.sign("Store", said))
        stream = link._line.channel.stream_unary(f"/{convert.BULK}/Store")(metadata=metadata, timeout=10)
        with pytest.raises((aio.AioRpcError, asyncio.InvalidStateError)):
            while True:
                await stream.write(b"")
                await asyncio.sleep(0.001)
        assert {"stalled": 1} == federation.server.meter.refusals


async def test_a_download_that_nobody_reads(
    federation: Federation, raw: AsyncExitStack, tmp_path: Path
) -> None:
    """So many of one site are begun and no more. Each is given up when nothing of it was read for a while: its file is
    closed, and the place is the site's again when its line is.
    """
    await start_again(federation, stall_seconds=0.1)
    blob = federation.desk.lay(os.urandom(4 << 20))
    request = convert.say_fetch(blob.digest, 0)
    async with federation.link("hospital_a") as link:
        await link.leave()
        line = await line_of(raw, federation, "hospital_a", window=1)
        calls = []
        for _ in range(12):
            call = line.begin(FETCH, dict(link._line.sign("Fetch", request)))
            line.send(call, message(request), end=True)
            calls.append((line, call))
        over = await wait_over(calls, len(calls) - MOST_STREAMS)
        assert all(b"too_many" in words for words in over)
        refusals = federation.server.meter.refusals
        async with asyncio.timeout(10):
            while refusals["stalled"] < MOST_STREAMS:
                await link.leave()
        assert [] == [one for one in list_open_files() if one.name == blob.digest]
        with pytest.raises(Unreachable, match="too_many"):
            await link.fetch(blob, tmp_path / "model")
        await line.close()
        async with asyncio.timeout(10):
            while federation.server._bulk._streams._taken:
                await link.leave()
        await link.fetch(blob, tmp_path / "model")


@pytest.mark.parametrize("call", ["Remove", "Revoke"])
async def test_a_site_that_is_sent_away_has_no_stream_left(
    federation: Federation, raw: AsyncExitStack, call: str
) -> None:
    """Its download and its upload end at once, with the reason; another site's goes on."""
    blob = federation.desk.lay(os.urandom(4 << 20))
    fetch = convert.say_fetch(blob.digest, 0)
    held = []
    for site in ("hospital_a", "hospital_b"):
        async with federation.link(site) as link:
            await link.leave()
            sent = message(bytes(1000), size=1 << 20)
            held += await begin_stores(federation, raw, link, number=1, sent=sent)
            line = await line_of(raw, federation, site, window=1)
            down = line.begin(FETCH, dict(link._line.sign("Fetch", fetch)))
            line.send(down, message(fetch), end=True)
            held.append((line, down))
    transfers = federation.server._bulk._transfers._of
    async with federation.link("hospital_c") as third, asyncio.timeout(10):
        while sum(map(len, transfers.values())) < 4:
            await third.leave()
    async with federation.operator() as operator:
        await operator.decide(call, "hospital_a", "")
    (line, up), _, *others = held
    await line.wait_over(up, seconds=SOON)
    assert (b"not_in_the_run" if call == "Remove" else b"revoked") in line.over[up]
    assert {"hospital_b"} == set(transfers)
    assert [{}, {}] == [other.over for other, _ in others]
    assert 1 == sum(one.name == blob.digest for one in list_open_files())


def list_open_files() -> list[Path]:
    """What this process has open; only Linux tells."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(one.readlink())
    return found
