"""A TCP proxy that counts what passes, and cuts or freezes the line after a number of bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Literal

Way = Literal["down", "up"]
SLACK = (1 << 20) + (1 << 18)
"""An unfinished frame, and what TLS and HTTP/2 add to a model."""


class CuttingProxy:
    """Stands between a site and its coordinator; after a cut, new connections pass.

    With `connect` it waits for a CONNECT first, as the proxies of companies do.
    """

    def __init__(self, target: int, *, connect: bool = False) -> None:
        self.passed: dict[Way, int] = {"down": 0, "up": 0}
        self.cuts = 0
        self.asked: list[str] = []
        self._target, self._connect = target, connect
        self._limits: dict[Way, int] = {}
        self._frozen = False
        self._server: asyncio.Server | None = None
        self._consumed: Callable[[], int] = lambda: 0
        self._ends: set[asyncio.StreamWriter] = set()
        self._lines: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen on a free port; gives its number."""
        # Small buffers: what the kernel holds back at a cut would be lost, and a real line holds little.
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=1 << 16)
        return int(listening.getsockname()[1])

    def cut(self, way: Way, after: int, *, consumed: Callable[[], int]) -> None:
        """Cut the line once so many more bytes have passed this way and the receiver has caught up.

        `consumed` tells how many bytes it has taken. The line of a machine to itself is faster than any
        reader, and what gRPC holds unread at a cut is lost; on a real line, and so here, that is little.
        """
        self._consumed = consumed
        self._limits[way] = self.passed[way] + after

    def freeze(self, way: Way, after: int) -> None:
        """After so many more bytes let nothing pass this way, without a word."""
        self._frozen = True
        self._limits[way] = self.passed[way] + after

    async def stop(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
        for end in self._ends:
            end.transport.abort()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        if self._connect:
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0])
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        onward, back = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 16)
        self._ends |= {writer, back}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back, "up"))
                both.create_task(self._pump(onward, writer, "down"))
        except* ConnectionError:
            pass
        finally:
            for end in (writer, back):
                end.transport.abort()
            self._lines.discard(line)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Way) -> None:
        while data := await source.read(1 << 16):
            self.passed[way] += len(data)
            if self.passed[way] >= self._limits.get(way, self.passed[way] + 1):
                del self._limits[way]
                self.cuts += 1
                if self._frozen:
                    await asyncio.Event().wait()
                # A counter is no event: let the others run until it has moved.
                while self.passed[way] - len(data) - self._consumed() > SLACK:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                raise ConnectionError("cut")
            sink.write(data)
            await sink.drain()
        raise ConnectionError("closed")
