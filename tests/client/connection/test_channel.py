"""What a call that came to nothing is called: words an engineer can act on, not those of the library below."""

from __future__ import annotations

import socket

import grpc
import pytest
from grpc import aio

from pfl_client.connection import channel
from pfl_client.connection.channel import Line, open_channel
from pfl_client.connection.link import Unreachable
from pfl_common.errors import Refused
from pfl_common.wire import coordinator_pb2 as wire

LAST = "failed to connect to all addresses; last error: UNKNOWN: ipv4:192.0.2.1:7443: "
LOOKED_UP = "errors resolving pfl.invalid:7443: [field:hostname lookup error:Domain name not found]"
UNAVAILABLE, LATE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("code", "details", "words"),
    [
        (UNAVAILABLE, LAST + "Failed to connect to remote host: Connection refused", "connection refused"),
        (UNAVAILABLE, LAST + "connect endpoint timed out", "nothing came in time"),
        (UNAVAILABLE, LAST + "Failed to connect to remote host: Timeout occurred: FD shutdown", "in time"),
        (UNAVAILABLE, LOOKED_UP, "pfl invite --under NAME"),
        (UNAVAILABLE, "Socket closed", "the connection was cut"),
        (LATE, "Deadline Exceeded", "nothing came in time"),
        (grpc.StatusCode.CANCELLED, "CANCELLED", "more calls or lines may have come"),
        (grpc.StatusCode.INTERNAL, "Internal error from Core", "the reason was lost on the way"),
        (
            UNAVAILABLE,
            LAST + "the moon is full",
            "unavailable: UNKNOWN: ipv4:192.0.2.1:7443: the moon is full",
        ),
    ],
)
async def test_why_nobody_answers_is_said_in_words(code: grpc.StatusCode, details: str, words: str) -> None:
    """What is known is said in words; the rest is handed on, without what says nothing."""
    async with aio.insecure_channel("pfl.invalid:7443") as dialled:
        line = Line(dialled, "pfl.invalid:7443", lambda: None)
        nothing = aio.Metadata()
        why = line.explain(aio.AioRpcError(code, nothing, nothing, details=details))
    assert isinstance(why, Unreachable)
    assert str(why).startswith("no answer from pfl.invalid:7443: ")
    assert words in str(why)
    assert "all addresses" not in str(why)


async def test_a_port_where_nothing_listens() -> None:
    """A real line: what gRPC says today is understood."""
    with socket.socket() as bound:
        # Bound and not listening: nobody else can take this port while we dial it.
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        async with open_channel(address, grpc.ssl_channel_credentials()) as dialled:
            line = Line(dialled, address, lambda: None)
            with pytest.raises(Unreachable, match=r"connection refused, nothing listens there$"):
                await line.ask("pfl.Desk/Renew", wire.RenewRequest(), wire.RenewAnswer, seconds=20)


def test_an_answer_that_is_no_message() -> None:
    """Bytes that are nothing of ours end in words, and not in the decoder's traceback."""
    refused = channel._read("Join", b"\xff" * 9, wire.JoinAnswer)
    assert isinstance(refused, Refused)
    assert "bad_request" == refused.code
    assert "compare the versions" in refused.words
