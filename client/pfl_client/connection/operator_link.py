"""The operator's line to a coordinator, for `pfl status`, `pfl stop` and what is decided about sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import grpc
from google.protobuf.message import Message

from pfl_client.connection.channel import Answer, Line, Patience, open_channel
from pfl_common.identity import KeyPair
from pfl_common.wire import administration_pb2, convert
from pfl_common.wire import coordinator_pb2 as pb

_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100))
"""Where strangers hold a port's connections, its operator needs the first one that is free again."""


class Decided(NamedTuple):
    """What was done about a site, and the fingerprint of keys that waited."""

    words: str
    fingerprint: str


class Rotation(NamedTuple):
    """How far the change of the authority is, and the sites that do not know the new one yet."""

    words: str
    lacking: tuple[str, ...]


class OperatorLink:
    """Calls that only the operator's certificate may make. Make it inside a running event loop; close it."""

    def __init__(
        self,
        address: str,
        pair: KeyPair,
        *,
        ca_pem: bytes,
        patience: Patience | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`tell` hears why an answer takes longer than the operator would expect."""
        self._tell = tell
        self._seconds = (patience or Patience()).call_seconds
        credentials = grpc.ssl_channel_credentials(ca_pem, pair.key_pem, pair.certificate_pem)
        self._line = Line(open_channel(address, credentials, options=_OPTIONS), address, _no_check)

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

    async def decide(self, call: str, site: str, fingerprint: str = "") -> Decided:
        """Remove, Revoke, Approve or Deny a site."""
        request = administration_pb2.SiteRequest(site=site, fingerprint=fingerprint)
        said = await self._ask(call, request, administration_pb2.Decided, service=convert.ADMINISTRATION)
        return Decided(said.words, said.fingerprint)

    async def rotate(self, *, finish: bool = False, anyway: bool = False, until: int = 0) -> Rotation:
        """Let a new authority take over, or finish that; `until` is the Unix time at which it finishes by itself."""
        request = administration_pb2.RotateRequest(finish=finish, anyway=anyway, until=until)
        said = await self._ask("Rotate", request, administration_pb2.Rotated, service=convert.ADMINISTRATION)
        return Rotation(said.words, tuple(said.lacking))

    async def _ask(
        self, call: str, request: Message, answer: type[Answer], *, service: str = convert.OPERATOR
    ) -> Answer:
        # Strangers may have filled the port; who says nothing there loses its place after ten seconds.
        return await self._line.ask_patiently(
            f"{service}/{call}", request, answer, seconds=self._seconds, tell=self._tell
        )


def _no_check() -> None:
    """Nothing to check: the operator's certificate is made afresh for each command."""
