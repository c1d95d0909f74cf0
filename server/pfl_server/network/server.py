"""The coordinator's main port: passes calls of sites on to the Desk of the moment, the operator's to the Service.

It decides nothing but who is calling; every answer is theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from pfl_common.app.called_off import CalledOff, Waiting
from pfl_common.errors import Refused
from pfl_common.identity import KeyPair
from pfl_common.spec import data_description, status_json
from pfl_common.spec.messages import Assignment, Joined, Receipt
from pfl_common.spec.run import ClientId
from pfl_common.wire import convert, limits
from pfl_common.wire import coordinator_pb2 as pb
from pfl_server.network.administration import Administration
from pfl_server.network.bulk import STALL_SECONDS, Bulk
from pfl_server.network.port_limits import PortLimits
from pfl_server.network.requests import BODY_SECONDS, Gate, answer_operator, answer_site
from pfl_server.network.rpc import OPTIONS, Callers, open_port
from pfl_server.network.shown_identity import ShownIdentity
from pfl_server.sites.service import Service
from pfl_server.telemetry.counters import Meter

BOUNDS = (
    # A site has four calls at once. What one line has sent halfway lies in memory: a message of each stream.
    ("grpc.max_concurrent_streams", 32),
    # The longest message there is, a site's description of its data; gRPC by itself would take 4 MiB.
    ("grpc.max_receive_message_length", max(convert.FRAME_BYTES, *limits.LARGEST.values())),
    # Of an upload so much may wait beside the frame that is being read: half a frame. A whole one would fill long fast
    # lines better, but a coordinator that is killed while it lags would then have lost up to 3.9 MiB of an upload.
    ("grpc.http2.lookahead_bytes", 1 << 19),
    # A site asks for work again at once. A line without any call is somebody who only keeps a place.
    ("grpc.max_connection_idle_ms", 300_000),
)
LONGEST_WAIT_SECONDS = 120.0
LONGEST_HOLD_SECONDS = 5.0
LOOPBACK = "127.0.0.1"

MOST_UNHEARD, MORE_UNHEARD = 1000, 3
"""Calls that came and that nobody has begun to answer: from so many on, or one for each line, gRPC ends some by chance,
and from so many times as many on all. These are its own numbers.
"""
LONGEST_UNHEARD_SECONDS = 60

Result = TypeVar("Result")
Answering: TypeAlias = "Callable[..., grpc.RpcMethodHandler[bytes, bytes]]"
Renewal: TypeAlias = Callable[[ClientId, bytes, bytes], Awaitable[tuple[bytes, bytes, bytes]]]


class GrpcServer:
    """One port for all sites and the operator; it accepts mutual TLS only."""

    def __init__(  # noqa: PLR0913  # what it is put together of, all but the first by default
        self,
        callers: Callers,
        *,
        renew: Renewal | None = None,
        stall_seconds: float = STALL_SECONDS,
        body_seconds: float = BODY_SECONDS,
        meter: Meter | None = None,
        administration: Administration | None = None,
    ) -> None:
        self.meter, self._callers, self._administration = meter or Meter(), callers, administration
        self._gate = Gate(callers, self.meter, body_seconds=body_seconds)
        self._renew, self._stall_seconds = renew, stall_seconds
        self._shown: ShownIdentity | None = None
        self.operator_port = 0
        """Where the operator's calls come in if the port for sites asks nobody for a certificate; 0: there too."""
        self._server: aio.Server | None = None
        self._bulk: Bulk | None = None
        self._held = Waiting()
        """Calls that wait for something to happen; called off when the port closes."""

    async def start(  # noqa: PLR0913  # what a port is opened with, each by its name
        self,
        service: Service,
        *,
        host: str,
        port: int,
        pair: KeyPair,
        ca_pem: bytes,
        lines: int = PortLimits.sites,
    ) -> int:
        """Open the port and answer, up to so many lines; gives its number. Callers must come from the CA `ca_pem`."""
        self._held = Waiting()
        self._bulk = Bulk(service, self._gate, stall_seconds=self._stall_seconds)
        server = aio.server(options=(*OPTIONS, *BOUNDS, *_bounds_of(lines)))
        answer = partial(answer_site, gate=self._gate)
        operator = _operator_calls(service, self._gate)
        sites = _SiteCalls(service, self._bulk, answer, held=self._held, renew=self._renew)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(convert.COORDINATOR, sites.handlers()),
                grpc.method_handlers_generic_handler(convert.OPERATOR, operator),
                self._bulk.handlers(),
            )
        )
        if self._administration is not None:
            calls = self._administration.handlers(service, self._gate, end=self._bulk.end)
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(convert.ADMINISTRATION, calls),)
            )
        self._shown, proxied = ShownIdentity(pair, ca_pem), self._callers.proxied
        credentials = self._shown.credentials(require_certificate=not proxied)
        opened = open_port(server, host, port=port, credentials=credentials, option="--port")
        if proxied:
            mutual = self._shown.credentials(require_certificate=True)
            self.operator_port = open_port(server, LOOPBACK, port=0, credentials=mutual)
        await server.start()
        self._server = server
        return opened

    def show(self, pair: KeyPair, ca_pem: bytes) -> None:
        """Show another certificate, and trust these authorities, from the next line on."""
        if self._shown is not None:
            self._shown.exchange(pair, ca_pem)

    async def stop(self, grace: float) -> None:
        """Take no more calls, let those at work end within `grace` seconds, then cut what is left."""
        if self._server is None or self._bulk is None:
            return
        self._held.call_off()
        await self._server.stop(grace)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._bulk.drain()
        self._server = self._bulk = None


class _SiteCalls:
    """The control calls of a site: each reads the message, asks the Desk of the moment and writes the answer."""

    def __init__(
        self,
        service: Service,
        bulk: Bulk,
        answer: Answering,
        *,
        held: Waiting,
        renew: Renewal | None,
    ) -> None:
        self._service, self._bulk, self._answer = service, bulk, answer
        self._held, self._renew = held, renew

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        """The calls by name."""
        return {
            "Join": self._answer("Join", pb.JoinRequest, self._join),
            "Visit": self._answer("Visit", pb.VisitRequest, self._visit),
            "NextTask": self._answer("NextTask", pb.NextTaskRequest, self._next_task),
            "Offer": self._answer("Offer", pb.OfferRequest, self._offer),
            "HandIn": self._answer("HandIn", pb.HandInRequest, self._hand_in),
            "Report": self._answer("Report", pb.ReportRequest, self._report),
            "Decline": self._answer("Decline", pb.DeclineRequest, self._decline),
            "Heartbeat": self._answer("Heartbeat", pb.HeartbeatRequest, self._heartbeat),
            "Leave": self._answer("Leave", pb.LeaveRequest, self._leave),
            "Renew": self._answer("Renew", pb.RenewRequest, self._renewed),
        }

    async def _join(self, site: ClientId, said: pb.JoinRequest) -> Message:
        description = convert.hear_description(said)
        data_description.check(description)
        joined = await self._service.desk.join(site, description)
        if isinstance(joined, Joined):
            self._bulk.announce(joined.init.digest, "init")
        return convert.say_joined(joined)

    async def _visit(self, site: ClientId, said: pb.VisitRequest) -> Message:
        visited = await _unless_off(self._held, self._service.desk.visit(site))
        if visited is not None:
            self._bulk.announce(visited.joined.init.digest, "init")
            self._bulk.announce(visited.last.blob.digest, visited.last.task.kind.value)
        return convert.say_visited(visited)

    async def _next_task(self, site: ClientId, said: pb.NextTaskRequest) -> Message:
        answer, content = await self._find_work(site, said, most=LONGEST_WAIT_SECONDS)
        if content:
            answer.assignment.content = content
        return answer

    async def _find_work(
        self, site: ClientId, said: pb.NextTaskRequest, *, most: float
    ) -> tuple[pb.NextTaskAnswer, bytes]:
        """An answer, and what goes beside it: put into the message that leaves, for each message copies it."""
        wait = min(most, max(0.0, said.wait_seconds))
        marks, before = convert.hear_marks(said), convert.hear_marks_before(said)
        asked = self._service.desk.next_task(site, marks, wait=wait, before=before)
        work = await _unless_off(self._held, asked)
        answer, content = convert.say_work(work), b""
        if isinstance(work, Assignment):
            self._bulk.announce(work.blob.digest, work.task.kind.value)
            answer.assignment.hand_in = True
            if work.blob.size <= min(said.beside_bytes, convert.BESIDE_BYTES):
                # Bytes that are gone by now are refused when they are fetched.
                with suppress(Refused, OSError):
                    content = self._bulk.send_beside(site, work.blob.digest)
        return answer, content

    async def _offer(self, site: ClientId, said: pb.OfferRequest) -> Message:
        answer = await self._take_offer(site, said)
        if isinstance(answer, Receipt):
            return pb.OfferAnswer(receipt=convert.say_receipt(answer))
        return pb.OfferAnswer(room=pb.Room(offset=answer))

    async def _take_offer(self, site: ClientId, said: pb.OfferRequest) -> int | Receipt:
        offer = convert.hear_offer(said)
        if offer.header.sender != site:
            raise Refused("header", f"a header of {offer.header.sender[:63]!r}; expected: {site}, who offers")
        _check_size("with an offer", len(said.content), most=convert.BESIDE_BYTES)
        if said.content:
            return await self._bulk.take_whole(site, offer, said.content)
        return await self._bulk.offer(site, offer)

    async def _hand_in(self, site: ClientId, said: pb.HandInRequest) -> Message:
        if said.HasField("report") and said.report.key != said.offer.key:
            raise Refused("bad_request", "a report of another task than the offer's; expected: of the same")
        if not said.offer.content:
            raise Refused("bad_request", "an update without its bytes; expected: all of them, or Offer")
        receipt = await self._take_all(site, said)
        following, content = convert.say_work(None), b""
        began = asyncio.get_running_loop().time()
        # What is wrong with the question is told when it is asked again: the receipt has to be heard.
        with suppress(Refused):
            following, content = await self._find_work(site, said.next, most=LONGEST_HOLD_SECONDS)
        held = asyncio.get_running_loop().time() - began
        answer = pb.HandInAnswer(receipt=convert.say_receipt(receipt), next=following, held_seconds=held)
        if content:
            answer.next.assignment.content = content
        return answer

    async def _take_all(self, site: ClientId, said: pb.HandInRequest) -> Receipt:
        """The receipt of an update, written down with the evaluation of its task: no receipt is out before both are."""
        calls: list[Coroutine[Any, Any, int | Receipt | None]] = [self._take_offer(site, said.offer)]
        if said.HasField("report"):
            scores = convert.hear_scores(said.report)
            # The first to begin: its task is open until the receipt is written.
            calls.insert(0, self._service.desk.report(site, said.report.key, scores, alone=False))
        *reported, receipt = await asyncio.gather(*calls, return_exceptions=True)
        for trouble in (*reported, receipt):
            # Of what is handed in again the report comes too late: it is here, or there would be no receipt.
            late = isinstance(trouble, Refused) and trouble.code == "late" and isinstance(receipt, Receipt)
            if isinstance(trouble, BaseException) and not late:
                raise trouble
        if not isinstance(receipt, Receipt):
            raise Refused("not_offered", "an update that did not come whole; expected: Offer, and go on")
        return receipt

    async def _report(self, site: ClientId, said: pb.ReportRequest) -> Message:
        await self._service.desk.report(site, said.key, convert.hear_scores(said))
        return pb.Done()

    async def _decline(self, site: ClientId, said: pb.DeclineRequest) -> Message:
        await self._service.desk.decline(site, said.key, said.reason, said.words)
        return pb.Done()

    async def _heartbeat(self, site: ClientId, said: pb.HeartbeatRequest) -> Message:
        wanted = self._service.desk.heartbeat(site, said.key, said.progress)
        hold = said.hold_seconds if wanted else 0.0
        if hold > 0:
            held = self._service.desk.linger(site, said.key, seconds=min(hold, LONGEST_HOLD_SECONDS))
            await _unless_off(self._held, held)
        return pb.HeartbeatAnswer(wanted=wanted)

    async def _leave(self, site: ClientId, said: pb.LeaveRequest) -> Message:
        if said.comes_back:
            self._service.desk.pause(site)
        else:
            await self._service.desk.leave(site)
        return pb.Done()

    async def _renewed(self, site: ClientId, said: pb.RenewRequest) -> Message:
        if self._renew is None:
            raise Refused("no_renewal", "a request for a certificate; expected: none, this port renews none")
        certificate, card, known = await self._renew(site, said.csr_pem, said.card_request)
        return pb.RenewAnswer(certificate_pem=certificate, card=card, authorities_pem=known)


def _operator_calls(service: Service, gate: Gate) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
    async def status(_: pb.StatusRequest) -> Message:
        content = status_json.write(service.status())
        _check_size("in the status", len(content), most=status_json.MOST_BYTES)
        return pb.StatusAnswer(json=content)

    async def stop(_: pb.StopRequest) -> Message:
        service.stop()
        return pb.Done()

    return {
        "Status": answer_operator("Status", pb.StatusRequest, status, gate=gate),
        "Stop": answer_operator("Stop", pb.StopRequest, stop, gate=gate),
    }


def _check_size(where: str, size: int, *, most: int) -> None:
    if size > most:
        raise Refused("too_large", f"{size} bytes {where}; expected: at most {most}")


async def _unless_off(
    held: Waiting, work: Coroutine[Any, Any, Result]
) -> Result | None:  # as asyncio types it
    """The work's result, or None as soon as the port closes: nobody waits there."""
    try:
        return await held.until_off(work)
    except CalledOff:
        return None


def _bounds_of(lines: int) -> tuple[tuple[str, int], ...]:
    """What depends on how many lines a port takes. All sites of a large federation are told at once that it begins, and
    then ask at once.
    """
    return (
        ("grpc.max_allowed_incoming_connections", lines),
        ("grpc.server.max_pending_requests", max(MOST_UNHEARD, lines)),
        ("grpc.server.max_pending_requests_hard_limit", MORE_UNHEARD * max(MOST_UNHEARD, lines)),
        ("grpc.server_max_unrequested_time_in_server", LONGEST_UNHEARD_SECONDS),
    )
