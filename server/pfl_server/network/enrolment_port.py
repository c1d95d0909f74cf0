"""The coordinator's second port: gives a certificate to a site that proves its invitation.

TLS without client certificates, because who comes here has none yet. The decisions are `identity`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

import grpc
import structlog
from google.protobuf.message import Message
from grpc import aio

from pfl_common.errors import Refused
from pfl_common.identity import ApprovalAwaited, Authority, KeyPair, Ledger, tell_fingerprint
from pfl_common.spec.run import ClientId
from pfl_common.wire import convert, limits
from pfl_common.wire import enrolment_pb2 as pb
from pfl_server.network.port_limits import PortLimits
from pfl_server.network.requests import read_body, read_request
from pfl_server.network.rpc import OPTIONS, Context, open_port, refusing
from pfl_server.network.shown_identity import ShownIdentity
from pfl_server.sites.notices import Notices
from pfl_server.telemetry.counters import Meter

BOUNDS = (
    ("grpc.max_receive_message_length", limits.LARGEST["Enrol"]),
    # A call without its message costs next to nothing, and so few to a line cannot keep others out.
    ("grpc.max_concurrent_streams", 2),
    ("grpc.http2.lookahead_bytes", limits.LARGEST["Enrol"]),
    # Who has been let in, or refused, has no more to do here; a line without a call keeps another from coming.
    ("grpc.max_connection_idle_ms", 15_000),
    ("grpc.max_connection_age_ms", 60_000),
    ("grpc.max_connection_age_grace_ms", 30_000),
)
BODY_SECONDS = 10.0
"""A request is a few kilobytes."""
AT_WORK = 4
"""Threads that check requests: strangers must not keep those busy that verify and sum."""

log = structlog.get_logger("pfl.enrolment")


class EnrolmentServer:
    """Signs certificates for invited sites and for sites of the same user on this machine.

    `local_secret` is the one in the discovery file; without it nobody is let in as the same user.
    """

    def __init__(  # noqa: PLR0913  # what it is put together of, all but the first two by default
        self,
        authority: Authority,
        ledger: Ledger,
        *,
        local_secret: bytes | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        meter: Meter | None = None,
        approval: Notices | None = None,
    ) -> None:
        """With `approval` the operator has to approve each site that comes; those that wait are noted there."""
        self.meter, self.body_seconds, self._approval = meter or Meter(), BODY_SECONDS, approval
        if approval is not None:
            approval.waiting.update(ledger.waiting())
        self._authority, self._ledger, self._local_secret = authority, ledger, local_secret
        self._clock = clock
        self._server: aio.Server | None = None
        self._shown: ShownIdentity | None = None
        self._at_work: ThreadPoolExecutor | None = None

    async def start(self, *, host: str, port: int, pair: KeyPair, lines: int = PortLimits.enrolling) -> int:
        """Open the port and answer, up to so many lines; gives the number of the port."""
        # Strangers may come here: nothing they send may be large, and nothing of theirs may last.
        own = {name for name, _ in BOUNDS}
        shared = (option for option in OPTIONS if option[0] not in own)
        options = (*shared, *BOUNDS, ("grpc.max_allowed_incoming_connections", lines))
        server = aio.server(options=options)
        enrol = grpc.stream_unary_rpc_method_handler(
            self._enrol,
            response_serializer=self._say,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(convert.ENROLMENT, {"Enrol": enrol}),)
        )
        self._shown = ShownIdentity(pair)
        credentials = self._shown.credentials(require_certificate=False)
        opened = open_port(server, host, port=port, credentials=credentials, option="--enrol-port")
        self._at_work = ThreadPoolExecutor(AT_WORK, thread_name_prefix="enrolment")
        await server.start()
        self._server = server
        return opened

    async def stop(self, grace: float) -> None:
        """Take no more calls and let those at work end within `grace` seconds."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None
        if self._at_work is not None:
            self._at_work.shutdown(wait=False)

    def show(self, pair: KeyPair, _: bytes) -> None:
        """Show another certificate from the next line on."""
        if self._shown is not None:
            self._shown.exchange(pair)

    async def renew(self, site: ClientId, csr_pem: bytes, card_request: bytes) -> tuple[bytes, bytes, bytes]:
        """A new certificate and card for a site that the other port has already recognised by its old one, with all
        authorities by which the site knows its federation from now on.
        """
        # Not in the threads where strangers wait.
        certificate, card = await asyncio.to_thread(self._sign, site, csr_pem, card_request)
        return certificate, card, self._authority.ca_pem

    def _say(self, answer: Message) -> bytes:
        content = answer.SerializeToString()
        self.meter.moved("down", "calls", len(content))
        return content

    async def _enrol(self, frames: AsyncIterator[bytes], context: Context) -> Message:
        async with refusing(context, self.meter):
            body = await read_body(frames, self.body_seconds)
            self.meter.moved("up", "calls", len(body))
            limits.check_length("Enrol", body)
            said = read_request(pb.EnrolRequest, body)
            # Records are locked and synced to disk: not in the event loop.
            loop = asyncio.get_running_loop()
            try:
                certificate, card = await loop.run_in_executor(self._at_work, partial(self._admit, said))
            except ApprovalAwaited as awaited:
                self._note_waiting(said.site, awaited.fingerprint)
                raise
            return pb.EnrolAnswer(certificate_pem=certificate, card=card)

    def _note_waiting(self, site: ClientId, fingerprint: str) -> None:
        if self._approval is None or self._approval.waiting.get(site) == fingerprint:
            return
        self._approval.waiting[site] = fingerprint
        told = tell_fingerprint(fingerprint)
        log.warning(
            "a site waits to be approved", site=site, fingerprint=told, what_to_do=f"pfl approve {site}"
        )
        self._approval.events.add(f"{site} waits to be approved (pfl approve {site}), keys {told}", "warning")

    def _admit(self, said: pb.EnrolRequest) -> tuple[bytes, bytes]:
        now, approve = self._clock(), self._approval is not None
        if said.way == pb.WAY_INVITATION:
            self._ledger.redeem(said.site, said.csr_pem, proof=said.proof, now=now, approve=approve)
        elif said.way == pb.WAY_SAME_USER and self._local_secret is not None:
            self._ledger.admit_local(
                said.site, said.csr_pem, proof=said.proof, secret=self._local_secret, approve=approve
            )
        else:
            raise Refused("not_accepted", "a way of proving that is not open here; expected: an invitation")
        return self._sign(said.site, said.csr_pem, said.card_request)

    def _sign(self, site: ClientId, csr_pem: bytes, card_request: bytes) -> tuple[bytes, bytes]:
        now = self._clock()
        # The card first: it is what can be refused, and a certificate alone would be of no use.
        card = self._authority.sign_card(card_request, csr_pem, name=site, now=now)
        return self._authority.sign_site(csr_pem, site, now=now), card
