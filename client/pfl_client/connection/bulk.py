"""Transfers whole files over a line that may break: sends nothing twice that has arrived, and limits the attempts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from grpc import aio

from pfl_client.connection.channel import Line, Patience
from pfl_client.connection.link import CALLS, INIT, Tap, Unreachable
from pfl_client.connection.partial_file import Arriving
from pfl_common.app.backoff import BackOff
from pfl_common.errors import Refused
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.messages import Blob, Receipt
from pfl_common.spec.run import Kind
from pfl_common.wire import convert

PLAIN_SECONDS = 600.0
"""After a call without an answer all parcels go in streams for so long: the line may be too slow for them beside."""
AGAIN = frozenset(
    {"not_offered", "wrong_offset", "superseded", "too_short", "stalled", "too_many", "session"}
)
"""Refusals of a stream after which a new Offer says how to go on, at once: "no_room" is not one of them."""

Result = TypeVar("Result")


class Carrier:
    """Transfers files over one line and counts their bytes as they cross."""

    def __init__(self, line: Line, patience: Patience) -> None:
        self._line, self._patience = line, patience
        self._plain_until = float("-inf")

    @property
    def beside_bytes(self) -> int:
        """The largest parcel that goes with a control call now."""
        return convert.BESIDE_BYTES if asyncio.get_running_loop().time() >= self._plain_until else 0

    def go_plain(self) -> None:
        """For a while let no parcel go with a control call."""
        self._plain_until = asyncio.get_running_loop().time() + PLAIN_SECONDS

    async def fetch(
        self,
        blob: Blob,
        into: Path,
        *,
        kind: str = INIT,
        by: Digests = FIRST,
        tap: Tap | None = None,
    ) -> None:
        """Bring a file; what `into` already holds is taken for its beginning, and the whole is checked."""
        kept = -1
        while kept != 0:
            arriving = await asyncio.to_thread(Arriving, into, blob, by)
            kept = arriving.at
            if await self._bring(arriving, kind, tap):
                arriving.settle()
                return
            arriving.throw_away()
        raise Refused(
            "digest", "other bytes than announced; expected: those of their digest; fetch them again"
        )

    async def store(
        self,
        key: str,
        parcel: Path,
        make_offer: Callable[[], Awaitable[int | Receipt]],
        *,
        kind: str = Kind.TRAIN,
    ) -> Receipt:
        """Hand a file in: offer it, send what is lacking; after a break offer it again and go on."""
        reached = 0

        async def attempt() -> Receipt:
            nonlocal reached
            answer = await make_offer()
            if isinstance(answer, Receipt):
                return answer
            reached = max(reached, answer)
            return await self._store_rest(key, parcel, answer, kind=kind)

        return await self._persist(attempt, lambda: reached)

    async def _persist(self, attempt: Callable[[], Awaitable[Result]], reached: Callable[[], int]) -> Result:
        """Try until it is done, or until several attempts in a row have moved nothing."""
        pauses = BackOff(
            self._patience.first_pause_seconds, self._patience.longest_pause_seconds, varied=True
        )
        failures, best = 0, reached()
        while True:
            try:
                return await attempt()
            except (Unreachable, Refused) as error:
                if isinstance(error, Refused) and error.code not in AGAIN:
                    raise
                failures += 1
                if reached() > best:
                    failures, best = 1, reached()
                    pauses.begin_again()
                if failures >= self._patience.attempts:
                    raise Unreachable(f"the transfer stands at {best} bytes: {error}") from error
            await asyncio.sleep(pauses.take())

    async def _bring(self, arriving: Arriving, kind: str, tap: Tap | None) -> bool:
        await self._persist(lambda: self._fetch_rest(arriving, kind, tap), lambda: arriving.at)
        return arriving.whole

    async def _fetch_rest(self, arriving: Arriving, kind: str, tap: Tap | None) -> None:
        size = arriving.blob.size
        if arriving.at == size > 0:
            return
        method = self._line.channel.unary_stream(
            f"/{convert.BULK}/Fetch", request_serializer=bytes, response_deserializer=bytes
        )
        request = convert.say_fetch(arriving.blob.digest, arriving.at)
        signed = self._line.sign("Fetch", request)
        self._line.begin(signed, request)
        call = method(request, metadata=signed, timeout=self._patience.bulk_seconds)
        with arriving.opened() as take:
            async with self._watched(call) as moved:
                async for frame in call:
                    self._line.traffic.come(kind, len(frame))
                    if arriving.at + len(frame) > size:
                        call.cancel()
                        raise Refused("too_large", f"more than the {size} bytes that were announced")
                    if tap is not None:
                        tap(arriving.at, frame)
                    take(frame)
                    moved()
        if arriving.at < size:
            raise Unreachable(f"the stream ended at {arriving.at} of {size} bytes")

    async def _store_rest(self, key: str, parcel: Path, at: int, *, kind: str = Kind.TRAIN) -> Receipt:
        method = self._line.channel.stream_unary(
            f"/{convert.BULK}/Store", request_serializer=bytes, response_deserializer=bytes
        )
        said = convert.say_store(key, at)
        metadata = ((convert.STORE_METADATA, said), *self._line.sign("Store", said))
        self._line.begin(metadata)
        call = method(  # type: ignore[call-arg] # the stubs forget that frames may be written one by one
            metadata=metadata, timeout=self._patience.bulk_seconds
        )
        # A stream that is refused midway takes no more frames. The answer says why, unless gRPC lost it under
        # a frame on its way: then it looks like a broken line, and the next Offer says how to go on.
        with parcel.open("rb") as file, suppress(asyncio.InvalidStateError):
            async with self._watched(call) as moved:
                while frame := os.pread(file.fileno(), convert.FRAME_BYTES, at):
                    await call.write(frame)
                    at += len(frame)
                    self._line.traffic.go(kind, len(frame))
                    moved()
                await call.done_writing()
        # The answer comes after verification, which may take its time: the call's own limit holds.
        with self._explained():
            answer = await call
        self._line.traffic.come(CALLS, len(answer))
        return convert.read_receipt(answer)

    @asynccontextmanager
    async def _watched(self, call: aio.Call) -> AsyncIterator[Callable[[], None]]:
        """While a stream goes on: it is given up when nothing has moved for too long. To be told of each step."""
        seconds, clock = self._patience.stall_seconds, asyncio.get_running_loop().time
        patience = asyncio.timeout(seconds)
        try:
            async with patience:
                with self._explained():
                    yield lambda: patience.reschedule(clock() + seconds)
        except TimeoutError:
            if not patience.expired():  # a disk's own
                raise
            call.cancel()
            raise Unreachable(f"nothing moved for {seconds:.0f} s") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (aio.AioRpcError, aio.UsageError, asyncio.CancelledError) as error:
            raise self._line.explain(error) from None
