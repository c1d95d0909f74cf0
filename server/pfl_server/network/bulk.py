"""The coordinator's two bulk calls: they stream a file to a site, or an upload into a partial file.

Files are read and written in the event loop, one frame at a time: a frame goes to or comes from the page
cache in a fraction of a millisecond, and a hop to a thread would cost as much again.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc import aio

from pfl_common.errors import Refused
from pfl_common.files.full import is_full
from pfl_common.files.write_all import write_at
from pfl_common.spec.messages import Offer, Receipt
from pfl_common.spec.run import ClientId
from pfl_common.wire import convert, limits
from pfl_server.network.caller_limits import MOST_STREAMS, Places, Transfers
from pfl_server.network.requests import Gate, read_body
from pfl_server.network.rpc import Context, find_caller, forget_frames, refusing, weigh
from pfl_server.network.shared_frames import SharedFrames
from pfl_server.sites.service import Incoming, Service
from pfl_server.telemetry.counters import Freight, Meter

Done = TypeVar("Done")

STALL_SECONDS = 60.0
UNREAD_STALLS = 2
"""A site that reads nothing is given up later than one that sends nothing: it has a limit of its own, which is to be
the shorter one.
"""
MOST_ANNOUNCED = 4096


@dataclass(eq=False)
class _Lane:
    """One upload in progress: only the newest stream may write, and none while the upload is verified."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    incoming: Incoming | None = None
    turn: int = 0
    wanted: int = 0
    """How many hold the lock or wait for it."""
    patience: asyncio.Timeout | None = None
    """Of the stream that is being read."""

    def take_turn(self) -> int:
        """Begin a stream, or an offer: whatever was being read of this upload is over at once."""
        self.turn += 1
        if self.patience is not None:
            with suppress(RuntimeError):  # its time is over anyway
                self.patience.reschedule(asyncio.get_running_loop().time())
            self.patience = None
        return self.turn


@dataclass
class _Going:
    """A download on its way."""

    file: int
    at: int
    moved: float
    """When the last frame went out."""
    over: bool = False
    """No frame more: its file is closed."""


class _Counted(AsyncIterator[bytes]):
    """Counts each frame of a stream as it arrives, frames that are then discarded included."""

    def __init__(self, frames: AsyncIterator[bytes], meter: Meter) -> None:
        self._frames, self._meter = frames, meter

    async def __anext__(self) -> bytes:
        frame = await anext(self._frames)
        self._meter.moved("up", "train", len(frame))  # only training sends anything up
        return frame


class Bulk:
    """Streams whole files in frames and resumes a broken stream where it ended."""

    def __init__(self, service: Service, gate: Gate, *, stall_seconds: float = STALL_SECONDS) -> None:
        self._service, self._gate, self._meter = service, gate, gate.meter
        self._streams, self._transfers = Places(MOST_STREAMS, "transfers"), Transfers()
        self._announced: dict[str, Freight] = {}
        self._frames = SharedFrames()
        self._beside = "", b""
        """The file that was sent last beside an answer, by its digest: most sites of a round are sent the same."""
        self._stall_seconds, self._unread_seconds = stall_seconds, UNREAD_STALLS * stall_seconds
        self._lanes: dict[tuple[ClientId, str], _Lane] = {}
        self._at_work: set[asyncio.Task[Any]] = set()  # each with an answer of its own

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """The calls as gRPC wants them; without serializers, so that bytes stay bytes."""
        return grpc.method_handlers_generic_handler(
            convert.BULK,
            {
                "Fetch": grpc.stream_stream_rpc_method_handler(self._fetch),
                "Store": grpc.stream_unary_rpc_method_handler(self._store),
            },
        )

    async def offer(self, site: ClientId, offer: Offer) -> int | Receipt:
        """Make room for an upload and say where to go on; an older stream of the same upload is over."""

        async def answer() -> int | Receipt:
            async with self._held(site, offer.key) as lane:
                lane.take_turn()
                lane.incoming = None
                found = await self._service.desk.offer(site, offer)
                if isinstance(found, Receipt):
                    return found
                lane.incoming = found
                return found.offset

        # A call that is broken off would leave a thread at work on a file that the next one fills.
        return await self._to_the_end(answer())

    def announce(self, digest: str, freight: Freight) -> None:
        """A site has been told of these bytes: it will fetch them as this."""
        self._announced.pop(digest, None)
        self._announced[digest] = freight
        if len(self._announced) > MOST_ANNOUNCED:
            del self._announced[next(iter(self._announced))]

    def send_beside(self, site: ClientId, digest: str) -> bytes:
        """All of a small file, to go with the answer to a control call."""
        desk = self._service.desk
        path = desk.blob(site, digest)
        if self._beside[0] != digest:
            self._beside = digest, path.read_bytes()
        desk.fetched(site, digest)
        return self._beside[1]

    async def take_whole(self, site: ClientId, offer: Offer, content: bytes) -> int | Receipt:
        """A small upload that came with its offer: what lacks of it is written, and all of it verified."""

        async def take() -> Receipt:
            async with self._held(site, offer.key) as lane:
                lane.take_turn()
                # Nobody else gets at it before it is verified: no stream could go on with it.
                lane.incoming = None
                found = await self._service.desk.offer(site, offer)
                if isinstance(found, Receipt):
                    return found
                _check_length(len(content), found.size)
                with _opened(found.path, os.O_WRONLY | os.O_CREAT) as file:
                    os.ftruncate(file, found.size)
                    _write(file, memoryview(content)[found.offset :], found.offset)
                if found.tap is not None:
                    found.tap(0, content)
                found.came = found.size - found.offset
                return await self._service.desk.stored(site, offer.key)

        return await self._to_the_end(take())

    def end(self, site: ClientId, why: Refused) -> None:
        """No byte more goes to a site or comes from it in the streams that are open."""
        self._transfers.end(site, why)

    async def drain(self) -> None:
        """Wait for uploads that are whole and being verified, and for those that room is made for."""
        await asyncio.gather(*self._at_work, return_exceptions=True)

    async def _fetch(self, frames: AsyncIterator[bytes], context: Context) -> None:
        async with refusing(context, self._meter, self._gate.callers.proxies):
            site, digest, at = await self._hear_fetch(frames, context)
            async with self._transfers.under_way(site):
                unread = await self._send(context, site, digest, at)
            if unread is None:
                self._service.desk.fetched(site, digest)
            else:
                # gRPC cannot be told to drop it: the site's place is taken until it is read, or the line ends.
                with suppress(aio.InternalError):
                    await unread

    async def _hear_fetch(self, frames: AsyncIterator[bytes], context: Context) -> tuple[ClientId, str, int]:
        gate = self._gate
        # Before it is read from, a caller is known by its certificate alone; behind a proxy by its signature, later.
        early = gate.callers.place_of(context)
        self._streams.take(early, context)
        request = await read_body(frames, gate.body_seconds)
        self._meter.moved("up", "calls", len(request) + weigh(context, convert.SIGNED_METADATA))
        limits.check_length("Fetch", request)
        site, _ = gate.callers.site(context, "Fetch", request)
        if not early:
            self._streams.take(site, context)
        return site, *convert.hear_fetch(request)

    async def _send(
        self, context: Context, site: ClientId, digest: str, at: int
    ) -> asyncio.Future[None] | None:
        """Send a file from there on; gives the sending if it has come to no end in time."""
        blob = self._service.desk.blob(site, digest)
        with _opened(blob, os.O_RDONLY) as file, self._frames.fetching():
            size = os.fstat(file).st_size
            if at > size:
                raise Refused("wrong_offset", f"offset {at} of {size} bytes; expected: at most their number")
            going = _Going(file, at, asyncio.get_running_loop().time())
            # One task for all frames: one for each, with a limit of its own, takes longer than to hand it out.
            sending = asyncio.create_task(self._send_frames(context, digest, going))
            try:
                read = await self._is_read(sending, going)
            except aio.InternalError:
                return sending  # the site has gone; it will ask again from where it stands
            if not read:
                going.over = True
                seen = f"{site} has read nothing for {self._unread_seconds:g} s; it can go on at {going.at}"
                self._meter.refuse(Refused("stalled", seen), find_caller(context, self._gate.callers.proxies))
                return sending
        return None

    async def _send_frames(self, context: Context, digest: str, going: _Going) -> None:
        # Unknown is what a coordinator announced before it was restarted: nearly always a round's download.
        freight, clock = self._announced.get(digest, "train"), asyncio.get_running_loop().time
        while not going.over and (frame := self._frames.read(going.file, digest, going.at)):
            await context.write(frame)
            going.at, going.moved = going.at + len(frame), clock()
            self._meter.moved("down", freight, len(frame))

    async def _is_read(self, sending: asyncio.Task[None], going: _Going) -> bool:
        """Whether each frame goes out in time, which it does when the one before was read."""
        clock = asyncio.get_running_loop().time
        try:
            while not sending.done():
                left = going.moved + self._unread_seconds - clock()
                if left <= 0:
                    return False
                await asyncio.wait((sending,), timeout=left)
        except asyncio.CancelledError:
            sending.cancel()
            raise
        await sending
        return True

    async def _store(self, frames: AsyncIterator[bytes], context: Context) -> bytes:
        self._meter.moved("up", "calls", weigh(context, convert.STORE_METADATA, convert.SIGNED_METADATA))
        async with refusing(context, self._meter, self._gate.callers.proxies):
            sent = dict(context.invocation_metadata() or ())
            said = sent.get(convert.STORE_METADATA, b"")
            key, start = convert.hear_store(said)
            site, _ = self._gate.callers.site(context, "Store", bytes(said))
            self._streams.take(site, context)
            async with self._transfers.under_way(site):
                counted = _Counted(frames, self._meter)
                try:
                    receipt = await self._receive(site, key, start=start, frames=counted)
                except Refused as reason:
                    raise forget_frames(reason)  # noqa: B904  # itself
            answer = convert.say_receipt(receipt).SerializeToString()
            self._meter.moved("down", "calls", len(answer))
            return answer

    async def _receive(
        self, site: ClientId, key: str, *, start: int, frames: AsyncIterator[bytes]
    ) -> Receipt:
        async with self._held(site, key) as lane:
            turn, incoming = lane.take_turn(), lane.incoming
        if incoming is None:
            raise Refused("not_offered", f"an upload {key[:80]!r} without room; expected: Offer first")
        if start != incoming.offset:
            raise Refused(
                "wrong_offset", f"a stream from {start}; expected: from {incoming.offset}, as Offer answered"
            )
        await self._append(lane, turn, incoming=incoming, frames=frames)
        return await self._verify(lane, turn, site=site, key=key)

    async def _append(
        self, lane: _Lane, turn: int, *, incoming: Incoming, frames: AsyncIterator[bytes]
    ) -> None:
        at = incoming.offset
        with _opened(incoming.path, os.O_WRONLY | os.O_CREAT) as file:
            # What lies beyond the offset was not counted, it is written over; only the end of a longer file has to go.
            if os.fstat(file).st_size > incoming.size:
                os.ftruncate(file, incoming.size)
            async with self._patiently(lane, turn) as renew:
                while (frame := await anext(frames, None)) is not None:
                    # No await between this look and the writing: an older stream cannot slip in.
                    if lane.turn != turn:
                        raise _superseded()
                    if at + len(frame) > incoming.size:
                        raise _too_large(incoming.size)
                    _write(file, frame, at)
                    if incoming.tap is not None:
                        incoming.tap(at, frame)
                    at += len(frame)
                    incoming.came = at - incoming.offset
                    if frame:  # progress renews the time, and a frame without a byte is none
                        renew()
        _check_length(at, incoming.size)

    @asynccontextmanager
    async def _patiently(self, lane: _Lane, turn: int) -> AsyncIterator[Callable[[], None]]:
        """While a stream is read: it ends when nothing has come for too long, and when a newer one begins."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self._stall_seconds) as patience:
                lane.patience = patience
                yield lambda: patience.reschedule(clock() + self._stall_seconds)
        except TimeoutError:
            if lane.turn != turn:
                raise _superseded() from None
            words = f"nothing for {self._stall_seconds:g} s; Offer again and go on"
            raise Refused("stalled", words) from None
        finally:
            if lane.turn == turn:
                lane.patience = None

    async def _verify(self, lane: _Lane, turn: int, *, site: ClientId, key: str) -> Receipt:
        """Let the desk look at the whole upload, to the end even if the site has gone meanwhile."""

        async def verify() -> Receipt:
            async with self._held(site, key):
                if lane.turn != turn:
                    raise _superseded()
                lane.incoming = None  # whatever the verdict, the next stream needs a new offer
                return await self._service.desk.stored(site, key)

        return await self._to_the_end(verify())

    @asynccontextmanager
    async def _held(self, site: ClientId, key: str) -> AsyncIterator[_Lane]:
        """The one lane of an upload, for one at a time; there as long as somebody wants it or bytes are awaited."""
        lane = self._lanes.setdefault((site, key), _Lane())
        lane.wanted += 1
        try:
            async with lane.lock:
                yield lane
        finally:
            lane.wanted -= 1
            if not lane.wanted and lane.incoming is None:
                del self._lanes[site, key]

    async def _to_the_end(self, work: Coroutine[object, object, Done]) -> Done:
        """Finish the work even if the caller that waits for it goes away."""
        task = asyncio.create_task(work)
        self._at_work.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Done]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain when the site has gone


def _check_length(came: int, size: int) -> None:
    if came > size:
        raise _too_large(size)
    if came < size:
        raise Refused("too_short", f"{came} bytes of {size}; expected: all; Offer again and go on")


def _too_large(size: int) -> Refused:
    return Refused("too_large", f"more than the {size} bytes that were offered")


def _superseded() -> Refused:
    return Refused("superseded", "an older stream of an upload that was offered again")


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    try:
        file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise Refused("unknown_blob", "bytes that are gone; ask for the task again") from None
    try:
        yield file
    finally:
        os.close(file)


def _write(file: int, frame: bytes | memoryview, at: int) -> None:
    try:
        write_at(file, frame, at)
    except OSError as error:
        if is_full(error) or error.errno == errno.EFBIG:
            raise Refused(
                "no_room", "the coordinator's disk is full; its operator has to make room"
            ) from None
        raise
