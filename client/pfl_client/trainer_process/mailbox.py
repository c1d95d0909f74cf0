"""The daemon's end of its socket to the trainer, waited for in the event loop.

pyzmq has sockets for asyncio, which make a future, a timer and a turn of the loop for each frame: several times what it
takes to send and receive a small task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq

_NOW = int(zmq.DONTWAIT)


class Mailbox:
    """A socket without waiting of its own. Make it inside a running event loop; close it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket, self._loop = socket, asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._handle = int(socket.get(zmq.FD))
        self._loop.add_reader(self._handle, self._wake)

    async def send(self, frames: Sequence[bytes | memoryview]) -> None:
        """Hand a message over, as soon as there is room for it."""
        while True:
            try:
                # A message goes as a whole: where its first frame found room, the others do.
                self._socket.send_multipart(frames, _NOW, copy=False)
            except zmq.Again:
                await self._change()
            else:
                return

    async def receive(self, take: Callable[[zmq.Frame], None]) -> None:
        """The next message, frame by frame: each may be let go before the next one is looked at."""
        more = True
        while more:
            try:
                frame = self._socket.recv(_NOW, copy=False)
            except zmq.Again:
                await self._change()
            else:
                take(frame)
                more = frame.more

    def close(self) -> None:
        """Close the socket; who waits at it is cancelled."""
        if self._socket.closed:
            return
        self._loop.remove_reader(self._handle)
        self._socket.close()
        if self._waiting is not None:
            self._waiting.cancel()

    async def _change(self) -> None:
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wake(self) -> None:
        # Readable until somebody has asked what there is: else the loop would turn for nothing.
        if self._socket.get(zmq.EVENTS) and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
