"""A line to a gRPC port that keeps to no manners: messages sent by halves, streams that nobody reads.

HTTP/2 written by hand, as little of it as that takes: gRPC's own client would finish what it begins.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pfl_client.connection.grpc_link import GrpcLink
from pfl_common.wire import convert

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW = 0, 1, 3, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW = 4
SAYING_SECONDS = 30.0


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def message(content: bytes, *, size: int | None = None) -> bytes:
    """A message of gRPC, which may announce more than comes."""
    return struct.pack(">BI", 0, len(content) if size is None else size) + content


def _number(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    rest, found = value - most, bytearray([most])
    while rest >= 128:
        found.append(rest % 128 + 128)
        rest //= 128
    return bytes([*found, rest])


def _field(name: str, value: bytes) -> bytes:
    """A header as it is, neither in a table nor squeezed."""
    return b"\0" + _number(len(name), 7) + name.encode() + _number(len(value), 7) + value


class RawLine:
    """One connection; what comes back is looked at just enough to know which streams are over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._next = 1
        self.over: dict[int, bytes] = {}
        """Streams that the other side has ended, with the last headers it sent: enough to find a word in."""
        self.came = 0
        """Bytes of messages."""
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    def begin(self, path: str, metadata: Mapping[str, bytes] | None = None) -> int:
        """Begin a call: its headers alone."""
        stream, self._next = self._next, self._next + 2
        fields = {":method": b"POST", ":scheme": b"https", ":path": path.encode(), ":authority": b"localhost"}
        fields |= {"te": b"trailers", "content-type": b"application/grpc"}
        fields |= {
            name: base64.b64encode(value).rstrip(b"=") if name.endswith("-bin") else value
            for name, value in (metadata or {}).items()
        }
        content = b"".join(_field(name, value) for name, value in fields.items())
        self._writer.write(frame(HEADERS, END_HEADERS, stream, content))
        return stream

    def send(self, stream: int, content: bytes, *, end: bool = False) -> None:
        """Bytes of a call's messages, whether or not the other side has room for them."""
        for at in range(0, len(content) or 1, 16_384):
            last = end and at + 16_384 >= len(content)
            self._writer.write(frame(DATA, END_STREAM if last else 0, stream, content[at : at + 16_384]))

    async def wait_over(self, *streams: int, seconds: float = 10.0) -> None:
        """Until the other side has ended these streams."""
        async with asyncio.timeout(seconds):
            while not set(streams) <= self.over.keys() and not self.ended.is_set():
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        """Hang up."""
        self._reading.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        said: dict[int, bytes] = {}
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(9)
                size = int.from_bytes(head[:3], "big")
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                content = await self._reader.readexactly(size)
                if kind == SETTINGS and not flags & ACK:
                    self._writer.write(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    self._writer.write(frame(PING, ACK, 0, content))
                elif kind == DATA:
                    self.came += size
                elif kind == HEADERS:
                    said[stream] = content
                if kind == RESET or (kind in (HEADERS, DATA) and flags & END_STREAM):
                    self.over.setdefault(stream, said.get(stream, b""))
                    self._changed.set()
        self.ended.set()
        self._changed.set()


async def open_raw(
    port: int, ca_pem: bytes, *, keys: Path | None = None, window: int = 65_535, host: str = "127.0.0.1"
) -> RawLine:
    """A line to a port; `keys` is a file with a private key and its certificate. Of each stream's messages no more
    than `window` bytes are taken.
    """
    trust = ssl.create_default_context(cadata=ca_pem.decode())
    trust.set_alpn_protocols(["h2"])
    if keys is not None:
        trust.load_cert_chain(keys)
    reader, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost")
    writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, window)))
    return RawLine(reader, writer)


async def say(link: GrpcLink, call: str, body: bytes) -> bytes:
    """A site's call with any bytes for its message, signed as it should be; gives the bytes of the answer."""
    line = link._line
    method = line.channel.unary_unary(f"/{convert.COORDINATOR}/{call}")
    return bytes(await method(body, metadata=line.sign(call, body), timeout=SAYING_SECONDS))


Idle = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect_idly(port: int, number: int, host: str = "127.0.0.1") -> list[Idle]:
    """Connections that say nothing; one that is not taken at once is waited for no longer than a moment."""

    made: list[Idle] = []

    async def connect() -> None:
        async with asyncio.timeout(2):
            made.append(await asyncio.open_connection(host, port))

    try:
        await asyncio.gather(*(connect() for _ in range(number)), return_exceptions=True)
    except asyncio.CancelledError:
        hang_up(made)
        raise
    return made


def count_open(lines: list[Idle]) -> int:
    """Connections that the other side has not closed, as far as is known here."""
    return sum(not reader.at_eof() and reader.exception() is None for reader, _ in lines)


async def wait_closed(lines: list[Idle], left: int, seconds: float = 10.0) -> int:
    """Until the other side has closed all but so many; gives how many are open."""
    watched = [asyncio.create_task(_wait_end(reader)) for reader, _ in lines]
    try:
        async with asyncio.timeout(seconds):
            while count_open(lines) > left:
                await asyncio.wait(
                    [one for one in watched if not one.done()], return_when=asyncio.FIRST_COMPLETED
                )
    except TimeoutError:
        pass
    finally:
        for one in watched:
            one.cancel()
        await asyncio.gather(*watched, return_exceptions=True)
    return count_open(lines)


async def _wait_end(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1024):
            pass


def hang_up(lines: list[Idle]) -> None:
    """Close all of them at once."""
    for _, writer in lines:
        writer.transport.abort()
