"""A TCP proxy that counts what passes, and stops or cuts the line after a number of bytes."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Literal

Way = Literal["down", "up"]


@dataclass(frozen=True)
class Mark:
    """A number of bytes after which nothing more passes one way, until the line is cut."""

    after: int
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    cut: asyncio.Event = field(default_factory=asyncio.Event)


class CuttingProxy:
    """Stands between a site and its coordinator; after a cut, new connections pass.

    With `connect` it waits for a CONNECT first, as the proxies of companies do.
    """

    def __init__(self, target: int, *, connect: bool = False) -> None:
        self.passed: dict[Way, int] = {"down": 0, "up": 0}
        self.cuts = 0
        self.asked: list[str] = []
        self._target, self._connect = target, connect
        self._marks: dict[Way, Mark] = {}
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._lines: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen on a free port; gives its number."""
        # Small buffers: what the kernel holds back at a cut would be lost, and a real line holds little.
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=1 << 16)
        return int(listening.getsockname()[1])

    def cut(self, way: Way, after: int) -> Mark:
        """Cut the line, at once and for every reader, when so many more bytes have passed this way."""
        mark = self.freeze(way, after)
        mark.cut.set()
        return mark

    def freeze(self, way: Way, after: int) -> Mark:
        """After so many more bytes let nothing pass this way, without a word, until the mark says cut."""
        self._marks[way] = Mark(self.passed[way] + after)
        return self._marks[way]

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
        try:
            onward, back = await asyncio.open_connection("127.0.0.1", self._target, limit=1 << 16)
        except OSError:
            # Nobody listens there at the moment: hang up on the caller in turn.
            writer.transport.abort()
            self._lines.discard(line)
            return
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
            mark = self._marks.get(way)
            if mark is not None and self.passed[way] >= mark.after:
                del self._marks[way]
                mark.reached.set()
                await mark.cut.wait()
                self.cuts += 1
                raise ConnectionError("cut")
            sink.write(data)
            await sink.drain()
        raise ConnectionError("closed")
