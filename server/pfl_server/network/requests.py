"""One call, one message each way: read in time and in bounds, from somebody who may call, and answered.

Handlers take a stream where one message comes: gRPC would wait for that of a plain call for ever, before any of our
lines is reached. On the wire both are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from pfl_common.errors import Refused
from pfl_common.spec.run import ClientId
from pfl_common.wire import carrying, convert, limits
from pfl_server.network.caller_limits import MOST_CALLS, Places
from pfl_server.network.rpc import Callers, Context, forget_frames, refusing, weigh
from pfl_server.telemetry.counters import Freight, Meter

Request = TypeVar("Request", bound=Message)

BODY_SECONDS = 30.0
"""A call's message has to be here in this time: a site gives the whole call up after as long."""


@dataclass(frozen=True)
class Gate:
    """What every call of a port goes through."""

    callers: Callers
    meter: Meter
    calls: Places = field(default_factory=lambda: Places(MOST_CALLS, "calls"))
    body_seconds: float = BODY_SECONDS


async def read_body(frames: AsyncIterator[bytes], seconds: float) -> bytes:
    """The one message of a call, which has to come in time."""
    try:
        async with asyncio.timeout(seconds):
            body = await anext(frames, None)
    except TimeoutError:
        raise Refused("stalled", f"a call without its message for {seconds:g} s; call again") from None
    if body is None:
        raise Refused("bad_request", "a call without a message; expected: one")
    # Left open, it would be closed by a task of its own when its memory is let go of.
    if (close := getattr(aiter(frames), "aclose", None)) is not None:
        await close()
    return body


def read_request(request_type: type[Request], body: bytes) -> Request:
    """The caller's message, or a refusal if no program of this release would have sent it."""
    try:
        return request_type.FromString(body)
    except DecodeError:
        raise Refused("bad_request", f"no {request_type.__name__}; expected: one of this release") from None


def answer_site(
    call: str,
    request_type: type[Request],
    answer: Callable[[ClientId, Request], Awaitable[Message]],
    *,
    gate: Gate,
) -> grpc.RpcMethodHandler[bytes, bytes]:
    """One call of a site, one message each way, both signed."""
    callers, meter = gate.callers, gate.meter

    async def hear(frames: AsyncIterator[bytes], context: Context) -> bytes:
        gate.calls.take(callers.place_of(context), context)
        body = await read_body(frames, gate.body_seconds)
        came = len(body) + weigh(context, convert.SIGNED_METADATA)
        request = carrying.read_carrying(body, request_type)
        meter.carried("up", came, parcel=_weigh_parcel(request, len(body)))
        limits.check_length(call, body)
        site, signed = callers.site(context, call, body)
        if request is None:
            request = read_request(request_type, body)
        answered = await answer(site, request)
        said = answered.SerializeToString()
        signature = callers.book.sign_answer(call, signed, said)
        meter.carried("down", len(said) + len(signature), parcel=_weigh_parcel(answered, len(said)))
        context.set_trailing_metadata(((convert.ANSWER_METADATA, signature),))
        return said

    async def serve(frames: AsyncIterator[bytes], context: Context) -> bytes:
        async with refusing(context, meter, callers.proxies):
            try:
                return await hear(frames, context)
            except Refused as reason:
                raise forget_frames(reason)  # noqa: B904  # itself

    return grpc.stream_unary_rpc_method_handler(serve)


def answer_operator(
    call: str,
    request_type: type[Request],
    answer: Callable[[Request], Awaitable[Message]],
    *,
    gate: Gate,
) -> grpc.RpcMethodHandler[bytes, bytes]:
    """One call of the operator, who works on this machine: mutual TLS is enough."""

    async def serve(frames: AsyncIterator[bytes], context: Context) -> bytes:
        async with refusing(context, gate.meter):
            gate.callers.operator(context)
            body = await read_body(frames, gate.body_seconds)
            limits.check_length(call, body)
            return (await answer(read_request(request_type, body))).SerializeToString()

    return grpc.stream_unary_rpc_method_handler(serve)


def _weigh_parcel(said: Message | None, length: int) -> tuple[Freight, int]:
    kind, size = carrying.weigh(said, length)
    return kind.value, size
