"""The coordinator's second port: gives a certificate to a site that proves its invitation.

TLS without client certificates, because who comes here has none yet. The decisions are `identity`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import grpc
from google.protobuf.message import Message
from grpc import aio

from pfl_common.errors import Refused
from pfl_common.identity import Authority, KeyPair, Ledger
from pfl_common.spec.run import ClientId
from pfl_common.wire import convert
from pfl_common.wire import enrolment_pb2 as pb
from pfl_server.network.rpc import OPTIONS, Context, open_port, read_request, refusing
from pfl_server.telemetry.counters import Meter

LARGEST_MESSAGE = 1 << 16
MOST_AT_ONCE = 32


class EnrolmentServer:
    """Signs certificates for invited sites and for sites of the same user on this machine.

    `local_secret` is the one in the discovery file; without it nobody is let in as the same user.
    """

    def __init__(
        self,
        authority: Authority,
        ledger: Ledger,
        *,
        local_secret: bytes | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        meter: Meter | None = None,
    ) -> None:
        self.meter = meter or Meter()
        self._authority, self._ledger, self._local_secret = authority, ledger, local_secret
        self._clock = clock
        self._server: aio.Server | None = None

    async def start(self, *, host: str, port: int, pair: KeyPair) -> int:
        """Open the port and answer; gives the number of the port."""
        # Strangers may come here: few at a time, and nothing they send may be large.
        options = (*OPTIONS, ("grpc.max_receive_message_length", LARGEST_MESSAGE))
        server = aio.server(options=options, maximum_concurrent_rpcs=MOST_AT_ONCE)
        enrol = grpc.unary_unary_rpc_method_handler(
            self._enrol,
            response_serializer=self._say,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(convert.ENROLMENT, {"Enrol": enrol}),)
        )
        credentials = grpc.ssl_server_credentials([pair])
        opened = open_port(server, host, port=port, credentials=credentials, option="--enrol-port")
        await server.start()
        self._server = server
        return opened

    async def stop(self, grace: float) -> None:
        """Take no more calls and let those at work end within `grace` seconds."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None

    async def renew(self, site: ClientId, csr_pem: bytes, card_request: bytes) -> tuple[bytes, bytes]:
        """A new certificate and card for a site that the other port has already recognised by its old one."""
        return await asyncio.to_thread(self._sign, site, csr_pem, card_request)

    def _say(self, answer: Message) -> bytes:
        content = answer.SerializeToString()
        self.meter.moved("down", "calls", len(content))
        return content

    async def _enrol(self, body: bytes, context: Context) -> Message:
        self.meter.moved("up", "calls", len(body))
        async with refusing(context, self.meter):
            said = read_request(pb.EnrolRequest, body)
            # Records are locked and synced to disk: not in the event loop.
            certificate, card = await asyncio.to_thread(self._admit, said)
            return pb.EnrolAnswer(certificate_pem=certificate, card=card)

    def _admit(self, said: pb.EnrolRequest) -> tuple[bytes, bytes]:
        now = self._clock()
        if said.way == pb.WAY_INVITATION:
            self._ledger.redeem(said.site, said.csr_pem, proof=said.proof, now=now)
        elif said.way == pb.WAY_SAME_USER and self._local_secret is not None:
            self._ledger.admit_local(said.site, said.csr_pem, proof=said.proof, secret=self._local_secret)
        else:
            raise Refused("not_accepted", "a way of proving that is not open here; expected: an invitation")
        return self._sign(said.site, said.csr_pem, said.card_request)

    def _sign(self, site: ClientId, csr_pem: bytes, card_request: bytes) -> tuple[bytes, bytes]:
        now = self._clock()
        # The card first: it is what can be refused, and a certificate alone would be of no use.
        card = self._authority.sign_card(card_request, csr_pem, name=site, now=now)
        return self._authority.sign_site(csr_pem, site, now=now), card
