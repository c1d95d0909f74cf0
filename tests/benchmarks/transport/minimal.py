"""The yardstick: a round written by hand with nothing but what a round cannot do without.

gRPC over TLS (the server's certificate only), streams of raw frames of 1 MiB, AES-256-GCM for each frame, a sum in
float32 folded frame by frame as it arrives, buffers used again. No client certificates, no signatures, no spool, no
journal, no retries, no deadlines: the measuring program ends the processes.

    python minimal.py coordinator FOLDER --sites 10 --bytes 46758048 --rounds 7
    python minimal.py site FOLDER --number 0 --bytes 46758048 --rounds 7

FOLDER holds `server.key`, `server.pem`, `ca.pem` and `frame.key`; the coordinator leaves its address in `port` and,
after the last round, the moments at which rounds ended in `rounds.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from grpc import aio

FRAME = 1 << 20
SERVICE = "minimal.Round"
DOWN = 0xFFFF
"""Stands where a nonce has the number of the site that sends."""


def nonce(number: int, sender: int, place: int) -> bytes:
    """Never the same twice in a run: round, sender, place of the frame."""
    return struct.pack(">IHHI", number, 0, sender, place)


class Coordinator:
    """Hands the model out, adds up what comes back, and takes the mean when all have answered."""

    def __init__(self, key: bytes, *, sites: int, size: int, rounds: int) -> None:
        self._aes, self._sites, self._size, self._rounds = AESGCM(key), sites, size, rounds
        self._model = np.full(size // 4, 0.5, np.float32)
        self._total = np.zeros_like(self._model)
        self._scratch = bytearray(FRAME)
        self._sealed: list[bytes] = []
        self._open = asyncio.Condition()
        self._round = self._done = 0
        self.ended: list[float] = []
        self.over = asyncio.Event()

    async def start_round(self) -> None:
        """Seal the model once for all and let the sites have it."""
        number, raw = self._round + 1, memoryview(self._model).cast("B")
        self._sealed = [
            self._aes.encrypt(nonce(number, DOWN, place), raw[at : at + FRAME], None)
            for place, at in enumerate(range(0, self._size, FRAME))
        ]
        async with self._open:
            self._round, self._done = number, 0
            self._open.notify_all()

    async def fetch(self, request: bytes, context: aio.ServicerContext) -> None:
        """The model of a round, as soon as the round is open."""
        (wanted,) = struct.unpack(">I", request)
        async with self._open:
            await self._open.wait_for(lambda: self._round >= wanted)
        for frame in self._sealed:
            await context.write(frame)

    async def store(self, frames: AsyncIterator[bytes], context: aio.ServicerContext) -> bytes:
        """A site's update: each frame is opened and added as it comes."""
        sender, weight = struct.unpack(">HI", dict(context.invocation_metadata())["from-bin"])
        place = 0
        async for frame in frames:
            self._fold(frame, sender, place, weight=weight)
            place += 1
        self._done += 1
        if self._done == self._sites:
            np.divide(self._total, np.float32(self._sites * weight), out=self._model)
            self._total.fill(0)
            self.ended.append(time.time())
            if len(self.ended) == self._rounds:
                self.over.set()
            else:
                await self.start_round()
        return b""

    def _fold(self, frame: bytes, sender: int, place: int, *, weight: int) -> None:
        plain = memoryview(self._scratch)[: len(frame) - 16]
        self._aes.decrypt_into(nonce(self._round, sender, place), frame, None, plain)
        numbers = np.frombuffer(plain, np.float32)
        np.multiply(numbers, np.float32(weight), out=numbers)
        part = self._total[place * FRAME // 4 : place * FRAME // 4 + len(numbers)]
        np.add(part, numbers, out=part)


async def coordinate(folder: Path, *, host: str, sites: int, size: int, rounds: int) -> None:
    """Serve until so many rounds are over."""
    half = Coordinator((folder / "frame.key").read_bytes(), sites=sites, size=size, rounds=rounds)
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    calls = {
        "Fetch": grpc.unary_stream_rpc_method_handler(half.fetch),
        "Store": grpc.stream_unary_rpc_method_handler(half.store),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
    pair = (folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes()
    port = server.add_secure_port(f"{host}:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    await half.start_round()
    _leave(folder / "port", f"{host}:{port}")
    await half.over.wait()
    _leave(folder / "rounds.json", json.dumps(half.ended))
    await server.stop(0)


class Site:
    """Fetches, changes one number, sends back."""

    def __init__(self, channel: aio.Channel, key: bytes, *, number: int, size: int) -> None:
        self._aes, self._number = AESGCM(key), number
        self._model = memoryview(bytearray(size))
        self._fetch = channel.unary_stream(f"/{SERVICE}/Fetch")
        self._store = channel.stream_unary(f"/{SERVICE}/Store")

    async def take_part(self, number: int) -> None:
        """One round."""
        place = 0
        async for frame in self._fetch(struct.pack(">I", number), wait_for_ready=True):
            at = place * FRAME
            part = self._model[at : at + len(frame) - 16]
            self._aes.decrypt_into(nonce(number, DOWN, place), frame, None, part)
            place += 1
        self._model[0] = (self._model[0] + 1) % 256
        sender = struct.pack(">HI", self._number, 4)
        await self._store(self._frames(number), metadata=(("from-bin", sender),))

    async def _frames(self, number: int) -> AsyncIterator[bytes]:
        for place, at in enumerate(range(0, len(self._model), FRAME)):
            yield self._aes.encrypt(nonce(number, self._number, place), self._model[at : at + FRAME], None)


async def visit_all(folder: Path, *, first: int, count: int, size: int, rounds: int) -> None:
    """So many sites, each with a line of its own."""
    numbers = range(first, first + count)
    await asyncio.gather(*(visit(folder, number=one, size=size, rounds=rounds) for one in numbers))


async def visit(folder: Path, *, number: int, size: int, rounds: int) -> None:
    """Take part in so many rounds."""
    key, ca = (folder / "frame.key").read_bytes(), (folder / "ca.pem").read_bytes()
    address = (folder / "port").read_text()
    # Channels of one process would share a line.
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    async with aio.secure_channel(address, grpc.ssl_channel_credentials(ca), options=options) as channel:
        site = Site(channel, key, number=number, size=size)
        for played in range(1, rounds + 1):
            await site.take_part(played)


def _leave(path: Path, words: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(words)
    os.replace(draft, path)


def main() -> None:
    """Be the coordinator or one site."""
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("role", choices=("coordinator", "site"))
    words.add_argument("folder", type=Path)
    for name in ("--sites", "--number", "--bytes", "--rounds"):
        words.add_argument(name, type=int, default=0)
    words.add_argument("--host", default="127.0.0.1", help="where the coordinator listens")
    words.add_argument("--count", type=int, default=1, help="sites in this process")
    said = words.parse_args()
    if said.role == "coordinator":
        task = {"host": said.host, "sites": said.sites, "size": said.bytes, "rounds": said.rounds}
        asyncio.run(coordinate(said.folder, **task))
    else:
        task = {"first": said.number, "count": said.count, "size": said.bytes, "rounds": said.rounds}
        asyncio.run(visit_all(said.folder, **task))


if __name__ == "__main__":
    main()
