"""The HTTP port is there for those who ask, however many others hold a connection and say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pfl_server.status.connections import BoundedConnection
from pfl_server.status.http import WebServer
from tests.server.status.test_http import Scene, under_way

MOST = 4
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Line]]


@pytest.fixture
def scene() -> Scene:
    return under_way()


@pytest.fixture
def server(scene: Scene) -> WebServer:
    return WebServer(scene, ready=lambda: True)


@pytest.fixture
async def port(server: WebServer) -> AsyncIterator[int]:
    """A port for a few."""
    yield await server.start("127.0.0.1", 0, most=MOST)
    await server.stop()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for long."""
    monkeypatch.setattr(BoundedConnection, "head_seconds", 0.05)
    monkeypatch.setattr(BoundedConnection, "answer_seconds", 0.05)


@pytest.fixture
async def connect(port: int) -> AsyncIterator[Connect]:
    """Connects, and hangs up in the end."""
    lines: list[Line] = []

    async def open_line() -> Line:
        lines.append(await asyncio.open_connection("127.0.0.1", port))
        return lines[-1]

    yield open_line
    for _, writer in lines:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for _, writer in lines), return_exceptions=True)


async def ask(line: Line, *, text: bytes = HEALTH) -> bytes:
    """The first line of the answer."""
    line[1].write(text)
    return await asyncio.wait_for(line[0].readline(), 10)


async def is_closed(line: Line) -> bool:
    """Whether the other side has closed it, sooner or later."""
    try:
        return b"" == await asyncio.wait_for(line[0].read(), 10)
    except ConnectionResetError:
        return True


async def test_connections_that_ask_nothing_make_room(connect: Connect, server: WebServer) -> None:
    """Thirty times as many as the port takes, at once: who comes next is answered, and the oldest are gone."""
    await asyncio.gather(*(connect() for _ in range(30 * MOST)))
    assert b"HTTP/1.1 200 OK\r\n" == await ask(await connect())
    assert len(server._server.server_state.connections) <= MOST


async def test_an_answer_under_way_is_not_given_up_for_others(connect: Connect, scene: Scene) -> None:
    """Prometheus is served to the end while others crowd in."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def look() -> None:
        asked.set()
        await go_on.wait()

    scene.look = look
    scraping = await connect()
    answer = asyncio.create_task(ask(scraping, text=HEALTH.replace(b"healthz", b"metrics")))
    await asyncio.wait_for(asked.wait(), 10)
    for _ in range(3 * MOST):
        await connect()
    assert b"HTTP/1.1 200 OK\r\n" == await ask(await connect())
    go_on.set()
    assert b"HTTP/1.1 200 OK\r\n" == await answer


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTT", HEALTH[:-2]], ids=["nothing", "half", "no end"])
@pytest.mark.usefixtures("hasty")
async def test_a_request_that_does_not_come(connect: Connect, begun: bytes) -> None:
    """Its connection is closed, also when its bytes come one by one."""
    line = await connect()
    line[1].write(begun)
    assert await is_closed(line)


@pytest.mark.usefixtures("hasty")
async def test_an_answer_that_takes_too_long(connect: Connect, scene: Scene) -> None:
    """Nobody holds a place for ever, whatever the reason."""
    go_on = asyncio.Event()
    scene.look = go_on.wait
    line = await connect()
    line[1].write(HEALTH.replace(b"healthz", b"metrics"))
    assert await is_closed(line)
    go_on.set()


async def test_one_connection_may_ask_often(connect: Connect) -> None:
    """Each answer begins the time for the next request anew."""
    line = await connect()
    for _ in range(20):
        assert b"HTTP/1.1 200 OK\r\n" == await ask(line)
        while await line[0].readline() != b"\r\n":
            pass
        assert b"ok\n" == await line[0].readline()
