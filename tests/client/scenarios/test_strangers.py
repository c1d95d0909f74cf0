"""Something else answers where the coordinator was: who was answered before goes on asking, and says so once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from pfl_client.connection.channel import Stranger
from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import Traffic, Unreachable
from pfl_server.network.enrolment_port import EnrolmentServer
from tests.network.federation import HASTY, Federation

SAID = "something else answers in the coordinator's place"
Opening: TypeAlias = Callable[[Federation, Path], AbstractAsyncContextManager[None]]


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    """A running coordinator."""
    one = Federation(tmp_path)
    await one.start()
    yield one
    await one.stop()


@asynccontextmanager
async def other_federation(ours: Federation, folder: Path) -> AsyncIterator[None]:
    """Another federation's coordinator on our coordinator's port."""
    folder.mkdir()
    other = Federation(folder)
    await other.start_control(ours.port)
    try:
        yield
    finally:
        await other.server.stop(0)


@asynccontextmanager
async def other_port_of_ours(ours: Federation, folder: Path) -> AsyncIterator[None]:
    """Our coordinator was started again, and its port for enrolment is the one that was for sites."""
    office = EnrolmentServer(ours.authority, ours.ledger, local_secret=ours.local_secret)
    await office.start(host="127.0.0.1", port=ours.port, pair=ours.pair)
    try:
        yield
    finally:
        await office.stop(0)


@asynccontextmanager
async def plain_page(ours: Federation, folder: Path) -> AsyncIterator[None]:
    """A web server without TLS."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", ours.port):
        yield


STRANGERS = [
    pytest.param(other_federation, "is not of our federation", id="another federation"),
    pytest.param(other_port_of_ours, "does not know this call", id="another port of ours"),
    pytest.param(plain_page, "does not speak TLS", id="no TLS"),
]


PAUSE = 0.02
"""Between two tries, which wait for an event of the line and its deadline: the other side needs the processor too."""


async def ask_until(call: Callable[[], Awaitable[None]], words: str) -> None:
    """Ask until it is said that these cannot be reached; a broken line is found out in its own time."""
    async with asyncio.timeout(20):
        said = ""
        while words not in said:
            try:
                await call()
            except Unreachable as reason:
                said = str(reason)
                await asyncio.sleep(PAUSE)


@pytest.mark.parametrize(("opening", "words"), STRANGERS)
async def test_whoever_was_answered_before_goes_on(
    federation: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str], opening: Opening, words: str
) -> None:
    """It is said once each time a stranger comes, and the coordinator is heard again when it is back."""
    async with federation.link("hospital_a") as link:
        for count in (1, 2):
            await link.leave()
            await federation.server.stop(0)
            async with opening(federation, tmp_path / f"stranger-{count}"):
                for _ in range(3):
                    await ask_until(link.leave, words)
            assert count == "".join(capsys.readouterr()).count(SAID) + count - 1
            await federation.start_control(federation.port)
            await answered(link)


async def answered(link: GrpcLink) -> None:
    """Ask until the coordinator answers."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await link.leave()
            except Unreachable:
                await asyncio.sleep(PAUSE)


@pytest.mark.parametrize(("opening", "words"), STRANGERS)
async def test_whoever_was_never_answered_hears_it_at_once(
    federation: Federation, tmp_path: Path, opening: Opening, words: str
) -> None:
    """The address is wrong until it has been right once; an answer on an earlier line of the same program counts."""
    traffic = Traffic()
    async with federation.link("hospital_a") as link:
        await link.counting(traffic).leave()
    await federation.server.stop(0)
    address, keyring = f"127.0.0.1:{federation.port}", federation.keyring("hospital_a")
    async with opening(federation, tmp_path / "stranger"):
        async with GrpcLink(address, keyring, patience=HASTY) as link:
            with pytest.raises(Stranger, match=words):
                await link.leave()
        async with GrpcLink(address, keyring, patience=HASTY).counting(traffic) as link:
            await ask_until(link.leave, words)
