"""Opens a line from a site or the operator to a coordinator, and explains failed calls in words."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar, cast

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from grpc import aio

from pfl_client.connection.link import CALLS, NotAdmitted, Traffic, Unreachable
from pfl_client.connection.message_values import spell
from pfl_common.app.called_off import Waiting
from pfl_common.errors import Refused, UserError
from pfl_common.sealing.calls import CallSigner, NoSession, SignedCall
from pfl_common.spec.run import Json
from pfl_common.wire import convert
from pfl_common.wire.carrying import weigh

log = structlog.get_logger("pfl.site")

Answer = TypeVar("Answer", bound=Message)
Metadata: TypeAlias = tuple[tuple[str, bytes], ...]
Options: TypeAlias = tuple[tuple[str, int], ...]

_OPTIONS: Options = (
    # Firewalls forget idle connections without a word: a ping keeps them known, a lost one shows in time.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # However often, while nothing else is said: a call for work may wait for minutes.
    ("grpc.http2.max_pings_without_data", 0),
    # How often to call again is decided by who waits for the answer, so gRPC's own pause stays short.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # What is on its way and not yet read is lost with a broken line, and sent again. Left to itself gRPC widens this
    # window to many MiB; so it is one beside the frame that is being read. The price: two MiB per round trip at most,
    # which is 50 MB a second where that takes 40 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 20),
    # HTTP/2 cuts a frame of ours into 64 pieces, each with a head to read, unless it is told that one may be as large:
    # 1 MiB, its tag, and gRPC's own head.
    ("grpc.http2.max_frame_size", 1 << 21),
)
_OUT_OF_TIME = ("certificate has expired", "certificate is not yet valid")
"""What TLS says of a certificate whose authority it has found to be ours."""
_FOREIGN_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed", "not in peer cert")
_NO_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_TOO_LONG = "eceived message larger than max"
_LATE = "nothing came in time (a firewall on the way may swallow it)"
_UNKNOWN_NAME = (
    "this name is not known here; ask the operator for an invitation with an address that is "
    "(pfl invite --under NAME), or mend this machine's name service"
)
FULL_SECONDS = 60.0
"""So long a port that is full is dialled again: those who say nothing there lose their places every ten seconds."""
_CLOSED_EARLY = "Handshake read failed (Socket closed)"
_REASONS = {
    _CLOSED_EARLY: "the connection was closed before it was open (more may have come than the coordinator takes; those "
    "that say nothing it closes after ten seconds)",
    "Connection refused": "connection refused, nothing listens there",
    "errors resolving": _UNKNOWN_NAME,
    "hostname lookup error": _UNKNOWN_NAME,
    "DNS resolution failed": _UNKNOWN_NAME,
    "imed out": _LATE,
    "imeout": _LATE,
    "No route to host": "there is no way to this machine (no route to host)",
    "Network is unreachable": "this machine has no network that leads there",
    "Socket closed": "the connection was cut",
    "Connection reset": "the connection was cut",
    "Broken pipe": "the connection was cut",
    "CANCELLED": "the call was ended there unanswered (more calls or lines may have come than the coordinator takes)",
    "Internal error from Core": "the transfer was ended there, and the reason was lost on the way",
}
"""What gRPC says of a call that came to nothing, and what that means."""


Tell: TypeAlias = Callable[[str, bytes, int, Callable[[], dict[str, Json]]], None]
"""Hears of a message that is about to be sent: its call, its bytes, how many with what goes beside, its fields."""


class NotLetIn(Unreachable):
    """A line that was closed before it was open: nothing was said on it."""


class Stranger(UserError):
    """The server at the address is not the coordinator this program was told of."""


@dataclass(frozen=True)
class Patience:
    """Time limits of a line. Every field is a number of seconds unless its name says otherwise."""

    call_seconds: float = 30.0
    """An ordinary call must be answered within this time."""
    wait_seconds: float = 25.0
    """How long a call for work may wait at the coordinator; proxies cut what is silent for a minute."""
    bulk_seconds: float = 600.0
    """One stream lasts at most this long; a longer transfer goes on in another."""
    stall_seconds: float = 60.0
    """A stream in which nothing moves for this long is given up."""
    attempts: int = 3
    """A transfer that has failed this many times without any progress is given up. These are quick attempts: how long
    to wait for a coordinator that is away is decided where the run's lease is known.
    """
    first_pause_seconds: float = 0.5
    """The pause before the second attempt; each further one doubles, and all are varied at random."""
    longest_pause_seconds: float = 2.0
    """No pause is longer."""


DIRECT = Patience(wait_seconds=120.0)
"""Of a line that no proxy reads: pings keep it, and ten thousand sites that wait ask eighty times a second, not four
hundred.
"""


def open_channel(address: str, credentials: grpc.ChannelCredentials, *, options: Options = ()) -> aio.Channel:
    """A line to `host:port`; dialled at the first call, through a proxy if the system names one."""
    options = (*_OPTIONS, *options)
    if is_loopback(address):
        # A proxy's own loopback is another machine's.
        options = (*options, ("grpc.enable_http_proxy", 0))
    return aio.secure_channel(address, credentials, options=options)


def is_loopback(address: str) -> bool:
    """Whether an address `host:port` is this machine itself."""
    host = address.rpartition(":")[0].strip("[]").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@dataclass
class Line:
    """A channel to one coordinator that turns its failures into this product's errors."""

    channel: aio.Channel
    """Exchanged for a new one when our certificate is."""
    address: str
    check_own_certificate: Callable[[], None]
    """Raises a UserError when our own certificate is the reason that a coordinator does not hear us."""
    signer: CallSigner | None = None
    """Signs what a site says; the operator and a site that enrols have nothing to sign with."""
    traffic: Traffic = field(default_factory=Traffic)
    """What crosses is counted there."""
    tell: Tell = lambda *_: None
    """Told of every message before it is sent."""
    calls: Waiting = field(default_factory=Waiting, init=False)
    """Called off when the coordinator is known to be elsewhere."""
    _met: str = field(default="", init=False)
    """Who was last met in the coordinator's place."""

    async def ask(
        self, call: str, request: Message, answer: type[Answer], *, seconds: float, listed: int = 0
    ) -> Answer:
        """One message there and one back; `call` is service/name. So many bytes of it were told of before."""
        try:
            return await self._ask_once(call, request, answer, seconds=seconds, listed=listed)
        except NoSession:
            # The first call of a line, or a coordinator that was started anew: it has given us a session.
            return await self._ask_once(call, request, answer, seconds=seconds, listed=listed)

    async def ask_patiently(
        self,
        call: str,
        request: Message,
        answer: type[Answer],
        *,
        seconds: float,
        tell: Callable[[str], None],
    ) -> Answer:
        """The same without a session; while a port that is full closes the line it is dialled again, as is told.
        Nothing is asked twice.
        """
        try:
            return await self._ask_once(call, request, answer, seconds=seconds)
        except NotLetIn as reason:
            tell(
                "the coordinator's port closes the line at once, as a full one does: "
                f"dialling again for {FULL_SECONDS:.0f} s"
            )
            try:
                return await self._ask_once(call, request, answer, seconds=FULL_SECONDS, until_open=True)
            except Unreachable:
                raise reason from None

    async def _ask_once(  # noqa: PLR0913  # a call, and how it is made, each by its name
        self,
        call: str,
        request: Message,
        answer: type[Answer],
        *,
        seconds: float,
        listed: int = 0,
        until_open: bool = False,
    ) -> Answer:
        body = request.SerializeToString()
        method = self.channel.unary_unary(f"/{call}", request_serializer=bytes, response_deserializer=bytes)
        name = call.rpartition("/")[2]
        signed = self.signer.sign(name, body) if self.signer else None
        beside, parcel = _say(signed), weigh(request, len(body))
        # An update that goes with its offer is listed as an update.
        size = len(body) + _weigh(beside) - parcel[1] - listed
        self.tell(name, body, size, partial(spell, request))
        try:
            asked = method(body, metadata=beside, timeout=seconds, wait_for_ready=until_open)
            said: bytes = await asked
            trailing = await asked.trailing_metadata()
        except (aio.AioRpcError, asyncio.CancelledError) as error:
            reason = self.explain(error)
            if isinstance(reason, Refused | NotAdmitted):
                self.traffic.carry("up", len(body) + _weigh(beside), parcel=parcel)
            raise reason from None
        self._met = ""
        word, heard = _find(trailing, convert.ANSWER_METADATA), _read(name, said, answer)
        parcel_down = weigh(None if isinstance(heard, Refused) else heard, len(said))
        self.traffic.carry("up", len(body) + _weigh(beside), parcel=parcel)
        self.traffic.carry("down", len(said) + len(word), parcel=parcel_down)
        if self.signer is not None and signed is not None:
            self.signer.check(name, asked=signed, body=said, signature=word)
        if isinstance(heard, Refused):
            raise heard
        return heard

    def sign(self, call: str, body: bytes) -> Metadata:
        """The metadata of a call that is a stream."""
        return _say(self.signer.sign(call, body) if self.signer else None) or ()

    def begin(self, metadata: Metadata, request: bytes = b"") -> None:
        """A stream begins: what goes before its frames is counted."""
        size = len(request) + _weigh(metadata)
        self.tell("streams", request, size, dict)
        self.traffic.go(CALLS, size)

    def explain(self, error: BaseException) -> BaseException:
        """The error to raise in place of one of gRPC's."""
        if isinstance(error, asyncio.CancelledError):
            # gRPC reports a closed channel as if the caller had been cancelled: the task itself knows.
            task = asyncio.current_task()
            return error if task is None or task.cancelling() else Unreachable("the line was closed")
        if not isinstance(error, aio.AioRpcError):
            return Unreachable(f"the line to {self.address} broke: {error}")
        refused = _find_refusal(error)
        if refused is not None:
            self.traffic.come(CALLS, len(_find(error.trailing_metadata(), convert.REFUSAL_METADATA)))
            if isinstance(refused, NoSession) and self.signer is not None:
                self.signer.begin(refused)
            final = refused.code in convert.FINAL_REASONS
            return NotAdmitted(refused.words, refused.code) if final else refused
        return self._explain_status(error)

    def _explain_status(self, error: aio.AioRpcError) -> Exception:
        details = error.details() or ""
        if _TOO_LONG in details:
            # Refused before anybody read it; it would be again.
            return Refused("too_large", f"{details}; expected: no more than the coordinator takes")
        stranger = self._recognise(error.code(), details)
        if stranger is not None:
            return self._pass_by(stranger) if self._was_answered() else stranger
        try:
            self.check_own_certificate()
        except UserError as reason:
            return reason
        kind = NotLetIn if _CLOSED_EARLY in details else Unreachable
        return kind(f"no answer from {self.address}: {_say_why(error.code(), details)}")

    def _was_answered(self) -> bool:
        """Whether the coordinator has ever answered, on this line or on an earlier one of this program."""
        return self.traffic.crossed()["down", CALLS] > 0

    def _pass_by(self, stranger: Stranger) -> Unreachable:
        """A port that was the coordinator's may be another's while it is away: it comes back, there or elsewhere."""
        if stranger.seen != self._met:
            seen = {"seen": stranger.seen, "expected": stranger.expected, "advice": stranger.advice}
            log.warning("something else answers in the coordinator's place", **seen)
        self._met = stranger.seen
        return Unreachable(stranger.seen)

    def _recognise(self, code: grpc.StatusCode, details: str) -> Stranger | None:
        """Who answers instead of our coordinator, if somebody does."""
        if any(sign in details for sign in _OUT_OF_TIME):
            return Stranger(
                f"the certificate of {self.address} is of our federation, but not valid at this machine's time",
                expected="two clocks that agree, and a coordinator that was started within the last year",
                advice="compare both clocks (date -u); if they agree, the coordinator has to be started again",
            )
        if any(sign in details for sign in _FOREIGN_CERTIFICATE):
            return Stranger(
                f"{self.address} has a certificate that is not of our federation or not for this address",
                expected="the coordinator that invited this site, under a name it was started with",
                advice="compare the address with the join file; ask the operator whether the coordinator was "
                "set up anew; if a proxy on the way opens TLS, have this address exempted from that",
            )
        if any(sign in details for sign in _NO_TLS):
            return Stranger(
                f"what listens at {self.address} does not speak TLS",
                expected="a coordinator",
                advice="compare address and port with the join file",
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return Stranger(
                f"{self.address} does not know this call ({details})",
                expected="a coordinator's port for sites, of the same release",
                advice="compare the port with the join file, and the two versions",
            )
        return None


def _read(call: str, said: bytes, answer: type[Answer]) -> Answer | Refused:
    """An answer, taken apart once, before it is known whose it is; or what to say of it when that is known."""
    try:
        return answer.FromString(said)
    except DecodeError:
        return Refused(
            "bad_request",
            f"an answer to {call} that cannot be read; expected one of this release: compare the versions",
        )


def _say_why(code: grpc.StatusCode, details: str) -> str:
    """Why a call came to nothing; what nobody has met yet is told as gRPC tells it."""
    for sign, words in _REASONS.items():
        if sign in details:
            return words
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return _LATE
    return f"{code.name.lower()}: {details.rpartition('last error: ')[2]}"


def _say(signed: SignedCall | None) -> Metadata | None:
    return None if signed is None else ((convert.SIGNED_METADATA, convert.say_signed(signed)),)


def _weigh(metadata: Metadata | None) -> int:
    """Bytes of what goes beside a message."""
    return sum(len(value) for _, value in metadata or ())


def _find(metadata: object, wanted: str) -> bytes:
    # The stubs call these pairs by the name of one of grpc's own classes.
    for name, value in cast(Iterable[tuple[str, str | bytes]], metadata or ()):
        if name == wanted and isinstance(value, bytes):
            return value
    return b""


def _find_refusal(error: aio.AioRpcError) -> Refused | None:
    said = _find(error.trailing_metadata(), convert.REFUSAL_METADATA)
    return convert.hear_refusal(said) if said else None
