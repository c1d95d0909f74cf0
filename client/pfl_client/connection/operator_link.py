"""The operator's line to a coordinator, for `pfl status` and `pfl stop`."""

from __future__ import annotations

from typing import Self

import grpc
from google.protobuf.message import Message

from pfl_client.connection.channel import Answer, Line, Patience, open_channel
from pfl_common.identity import KeyPair
from pfl_common.wire import convert
from pfl_common.wire import coordinator_pb2 as pb


class OperatorLink:
    """Calls that only the operator's certificate may make. Make it inside a running event loop; close it."""

    def __init__(
        self, address: str, pair: KeyPair, *, ca_pem: bytes, patience: Patience | None = None
    ) -> None:
        self._seconds = (patience or Patience()).call_seconds
        credentials = grpc.ssl_channel_credentials(ca_pem, pair.key_pem, pair.certificate_pem)
        self._line = Line(open_channel(address, credentials), address, _no_check)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._line.channel.close(None)

    async def status(self) -> bytes:
        """The run at a glance, as JSON that nobody has checked yet: `status_json.read` does."""
        return (await self._ask("Status", pb.StatusRequest(), pb.StatusAnswer)).json

    async def stop(self) -> None:
        """End the run in good order after the round at work."""
        await self._ask("Stop", pb.StopRequest(), pb.Done)

    async def _ask(self, call: str, request: Message, answer: type[Answer]) -> Answer:
        return await self._line.ask(f"{convert.OPERATOR}/{call}", request, answer, seconds=self._seconds)


def _no_check() -> None:
    """Nothing to check: the operator's certificate is made afresh for each command."""
