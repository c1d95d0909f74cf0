"""What strangers do to the coordinator's ports, and sites that were let in and take part in nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.onboarding import enrolment
from pfl_common.errors import PflError
from pfl_common.identity import Keyring, new_secret
from pfl_common.spec.messages import Visited
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb
from tests.hostile.raw_line import Idle, RawLine, connect_idly, hang_up, message, open_raw, say
from tests.hostile.siege import Siege

COORDINATOR = f"/{convert.COORDINATOR}"
FETCH, STORE = f"/{convert.BULK}/Fetch", f"/{convert.BULK}/Store"
ENROL = f"/{convert.ENROLMENT}/Enrol"
AGAIN_SECONDS = 1.0
"""After so long an attacker that was thrown out is back."""

Attack: TypeAlias = Callable[[Siege], Awaitable[None]]


async def _idle(siege: Siege, port: str, number: int) -> None:
    """Connections that say nothing, made again as they are closed."""
    lines = list[Idle]()
    try:
        while True:
            lines = await _fill(lines, siege.port(port), number)
            await asyncio.sleep(AGAIN_SECONDS)
    finally:
        hang_up(lines)


async def _fill(lines: list[Idle], port: int, number: int) -> list[Idle]:
    """Those that are still open, and new ones in the place of the others."""
    still = [line for line in lines if not line[0].at_eof() and line[0].exception() is None]
    hang_up([line for line in lines if line not in still])
    return still + await connect_idly(port, number - len(still))


async def idle_to_sites_port(siege: Siege) -> None:
    """1,200 connections that say nothing."""
    await _idle(siege, "control", 1200)


async def idle_to_enrolment(siege: Siege) -> None:
    """The same to the port where sites enrol."""
    await _idle(siege, "enrolment", 1200)


async def idle_to_page(siege: Siege) -> None:
    """The same to the port of the status page."""
    await _idle(siege, "http", 1200)


async def enrolments_without_message(siege: Siege) -> None:
    """Enrolments with headers alone, while an invited site comes in every second."""
    async with _lines(siege, siege.port("enrolment"), 100, site=None) as lines:
        for line in lines:
            line.begin(ENROL)
        number = 0
        while True:
            number += 1
            await siege.enrol(f"newcomer_{number}")
            await asyncio.sleep(AGAIN_SECONDS)


async def wrong_proofs(siege: Siege) -> None:
    """Guesses at an invitation's secret, as fast as they are refused."""
    keyring = Keyring.open(siege.folder / "guesser" / "keys")
    forged = replace(siege.found, secret=new_secret())

    async def guess() -> None:
        while True:
            with suppress(NotAdmitted, Unreachable):
                await enrolment.enrol_same_user(keyring, forged, "site_0")

    await asyncio.gather(*(guess() for _ in range(4)))


async def marks_and_scores(siege: Siege) -> None:
    """Half a million empty marks in a megabyte, two million in four, 250,000 empty scores."""
    bodies = (
        ("NextTask", pb.NextTaskRequest(marks=[pb.Mark()] * 500_000).SerializeToString()),
        ("NextTask", pb.NextTaskRequest(marks=[pb.Mark()] * 2_000_000).SerializeToString()),
        ("Report", b"\x12\x02\x0a\x00" * 250_000),
    )

    async def call(link: GrpcLink) -> None:
        while True:
            for name, body in bodies:
                with suppress(Exception):
                    await say(link, name, body)

    async with _hostile(siege) as (link, _):
        await asyncio.gather(*(call(link) for _ in range(4)))


async def half_sent_messages(siege: Siege) -> None:
    """600 calls that announce a megabyte and send half of it."""
    async with _hostile(siege) as (_, keys), _lines(siege, siege.port("control"), 20, site=keys) as lines:
        while True:
            for line in lines:
                for _ in range(30):
                    line.send(line.begin(f"{COORDINATOR}/Join"), message(bytes(2000), size=1_000_000))
            await asyncio.sleep(AGAIN_SECONDS)


async def downloads_unread(siege: Siege) -> None:
    """1,300 downloads of which nothing is ever read."""
    async with (
        _hostile(siege) as (link, keys),
        _lines(siege, siege.port("control"), 50, site=keys, window=1) as lines,
    ):
        visited = await link.visit()
        assert isinstance(visited, Visited)
        request = convert.say_fetch(visited.joined.init.digest, 0)
        while True:
            for line in lines:
                for _ in range(26):
                    call = line.begin(FETCH, dict(link._line.sign("Fetch", request)))
                    line.send(call, message(request), end=True)
                await asyncio.sleep(0)
            await asyncio.sleep(10 * AGAIN_SECONDS)


async def stores_of_one_upload(siege: Siege) -> None:
    """300 streams at once for an upload, each with half a frame."""
    async with _hostile(siege) as (link, keys), _lines(siege, siege.port("control"), 15, site=keys) as lines:
        said = convert.say_store("000001-1-train", 0)
        while True:
            for line in lines:
                for _ in range(20):
                    metadata = ((convert.STORE_METADATA, said), *link._line.sign("Store", said))
                    line.send(line.begin(STORE, dict(metadata)), message(bytes(2000), size=1 << 20))
            await asyncio.sleep(AGAIN_SECONDS)


async def half_requests(siege: Siege) -> None:
    """Requests to the status page that never end, byte by byte."""
    lines = list[Idle]()
    try:
        while True:
            lines = await _fill(lines, siege.port("http"), 300)
            for _, writer in lines:
                writer.write(b"G")
            await asyncio.sleep(AGAIN_SECONDS)
    finally:
        hang_up(lines)


ATTACKS: tuple[Attack, ...] = (
    idle_to_sites_port,
    idle_to_enrolment,
    idle_to_page,
    half_requests,
    enrolments_without_message,
    wrong_proofs,
    marks_and_scores,
    half_sent_messages,
    downloads_unread,
    stores_of_one_upload,
)


@asynccontextmanager
async def _hostile(siege: Siege) -> AsyncIterator[tuple[GrpcLink, Path]]:
    """A site that was let in and takes part in nothing: its line, and its keys in one file."""
    keyring = await siege.enrol("site_x")
    keys = siege.folder / "site_x.pem"
    keys.write_bytes(keyring.key_pem + keyring.certificate_pem)
    async with GrpcLink(siege.found.addresses.control, keyring) as link:
        with suppress(PflError):
            await link.visit()  # for its session
        yield link, keys


@asynccontextmanager
async def _lines(
    siege: Siege, port: int, number: int, *, site: Path | None, window: int = 65_535
) -> AsyncIterator[list[RawLine]]:
    async with AsyncExitStack() as held:
        lines = []
        for _ in range(number):
            lines.append(await open_raw(port, siege.found.ca_pem, keys=site, window=window))
            held.push_async_callback(lines[-1].close)
        yield lines
