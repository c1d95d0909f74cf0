"""Shared by the coordinator's two ports: opens a port, identifies the caller, refuses a call."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import unquote

import grpc
import structlog
from grpc import aio

from pfl_common.errors import Refused, SettingError, UserError
from pfl_common.files.full import is_crowded
from pfl_common.identity import Peer, Refusal, host_and_port, peer_of
from pfl_common.identity.names import KEPT_IN_MEMORY
from pfl_common.sealing.calls import CallBook, NoSession, SignedCall
from pfl_common.spec.run import ClientId
from pfl_common.wire import convert
from pfl_server.network.proxies import FORWARDED, Proxies
from pfl_server.telemetry.counters import Meter
from pfl_server.telemetry.rejections import Caller

Context: TypeAlias = "aio.ServicerContext[object, object]"

OPTIONS = (
    # With it, two coordinators could listen on one port and share its callers unseen.
    ("grpc.so_reuseport", 0),
    # Sites behind firewalls keep idle lines open with pings; by default a server takes that for an attack.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Also while a line has no call, as that of a site that waits for room on its disk.
    ("grpc.keepalive_permit_without_calls", 1),
    # TLS looks at a certificate when a line is opened: once a day every line is opened anew.
    ("grpc.max_connection_age_ms", 24 * 3600 * 1000),
    # What has arrived and is not yet read lies in memory. gRPC by itself would let many MiB of each upload pile up;
    # each port says how many bytes may wait beside the frame that is being read (grpc.http2.lookahead_bytes).
    ("grpc.http2.bdp_probe", 0),
    # One piece for each frame of ours, with its tag, instead of 64, each with a head to read: a tenth of a round's
    # processor time.
    ("grpc.http2.max_frame_size", 1 << 21),
    # Somebody who connects and says nothing, or nothing that TLS can use, is gone after this time.
    ("grpc.server_handshake_timeout_ms", 10_000),
)

REFUSALS = tuple(sorted((convert.REASONS - {"session"}) | {kind.reason for kind in Refusal.__subclasses__()}))
"""All codes that refusals are counted under: those of the wire, and what enrolment tells its own operator alone."""

_PORT_ERRORS = {
    errno.EADDRINUSE: ("another program is listening there", "stop it, or choose another port with {option}"),
    errno.EACCES: ("this user may not open this port", "choose a port above 1023 with {option}"),
}
_NO_ADDRESS = "this machine does not have this address"
_OUR_ADDRESS = "an address of this machine"
_CHOOSE_HOST = "choose one of its own with --host, or 0.0.0.0 for all"

NO_PROXIES = Proxies()

log = structlog.get_logger("pfl.calls")


def open_port(
    server: aio.Server,
    host: str,
    *,
    port: int,
    credentials: grpc.ServerCredentials,
    option: str = "--port or --enrol-port",
) -> int:
    """Let a server listen here; the number is the one that was opened, also when 0 asked for any.

    `option` is where the operator sets the port: an error names it.
    """
    try:
        return int(server.add_secure_port(host_and_port(host, port), credentials))
    except RuntimeError:
        # gRPC does not say why; a plain socket does.
        raise _explain_port(host, port, option) from None


@dataclass(frozen=True)
class Callers:
    """Identifies callers by the certificate that TLS verified, and sites also by the signature on each call."""

    book: CallBook
    proxied: bool = False
    """A proxy in front ends TLS: then sites are known by their signatures alone."""
    proxies: Proxies = NO_PROXIES
    """Who may pass calls on then; none named: anybody."""

    def place_of(self, context: Context) -> str:
        """By what a caller's open calls are counted, before it has said a word; nothing where a proxy is in front,
        whose one line brings all sites.
        """
        return "" if self.proxied else _find_proven(context) or _host_of(context)

    def operator(self, context: Context) -> None:
        """Refuse callers without the operator's certificate."""
        self._check_certificate(context, "operator")

    def site(self, context: Context, call: str, body: bytes) -> tuple[ClientId, SignedCall]:
        """Which site calls, and how it signed that."""
        if self.proxies and not self.proxies.pass_on(host := _host_of(context)):
            raise Refused("not_a_site", f"a call from {host}; expected: one that a proxy of ours passes on")
        name = None if self.proxied else self._check_certificate(context, "site")
        sent = dict(context.invocation_metadata() or ())
        signed = convert.hear_signed(sent.get(convert.SIGNED_METADATA))
        if name is not None and signed.site != name:
            raise Refused(
                "not_a_site", f"a call of {name} signed as {signed.site[:63]!r}; expected: one name"
            )
        return self.book.check(call, body, signed), signed

    def _check_certificate(self, context: Context, role: str) -> ClientId:
        peer = _peer(context)
        if peer is None or peer.role != role:
            reason = "not_a_site" if role == "site" else "not_the_operator"
            seen = f"the {peer.role} {peer.name}" if peer else "somebody without a certificate"
            raise Refused(reason, f"a call by {seen}; expected: the certificate of a {role} for this call")
        return peer.name


@asynccontextmanager
async def refusing(context: Context, meter: Meter, proxies: Proxies = NO_PROXIES) -> AsyncIterator[None]:
    """End a call in order: a refusal tells its reason, anything unexpected is for our log alone."""
    try:
        yield
    except Refused as reason:
        told = _tell(reason)
        if not isinstance(reason, NoSession):  # how every line begins
            # After the answer is on its way: a line in the log takes time, and how long must not tell a stranger
            # for which of two reasons it was refused.
            caller = find_caller(context, proxies)
            asyncio.get_running_loop().call_soon(meter.refuse, _count_as(reason), caller)
        words = convert.say_refusal(told)
        meter.moved("down", "calls", len(words))
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION, told.code, ((convert.REFUSAL_METADATA, words),)
        )
    except aio.AbortError:
        raise
    except Exception as error:
        # What went wrong here may name paths and values: none of a peer's business.
        if is_crowded(error):
            logging.getLogger(__name__).error("no descriptor is left for a call: %s", error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "too many connections are open; call again")
        log.exception("a call failed")
        await context.abort(grpc.StatusCode.INTERNAL, "the coordinator failed at this call; its log says why")


def forget_frames(reason: Refused) -> Refused:
    """The same refusal, without the frames that it came through. In them lies the call's message, and gRPC keeps the
    error that ends a call in a ring with the call itself: Python looks for rings when there are many objects, not when
    they are many megabytes. To be raised where no message has a name.
    """
    error: BaseException | None = reason
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
    return reason


def weigh(context: Context, *names: str) -> int:
    """Bytes of what a caller has sent beside its message, under these names."""
    sent = dict(context.invocation_metadata() or ())
    return sum(len(sent.get(name, b"")) for name in names)


@lru_cache(maxsize=KEPT_IN_MEMORY)  # reading a certificate takes longer than many a call
def _read_peer(certificate_pem: bytes) -> Peer:
    try:
        return peer_of(certificate_pem)
    except UserError as reason:
        raise Refused("not_a_site", str(reason)) from None


def find_caller(context: Context, proxies: Proxies = NO_PROXIES) -> Caller:
    """Where the line comes from, and the name in the certificate that TLS has verified, if there is one."""
    sent = dict(context.invocation_metadata() or ())
    return Caller(proxies.origin(_host_of(context), sent.get(FORWARDED)), _find_proven(context))


def _find_proven(context: Context) -> str:
    with suppress(Refused):
        peer = _peer(context)
        return "" if peer is None else peer.name if peer.role == "site" else f"the {peer.role}"
    return ""


def _host_of(context: Context) -> str:
    kind, _, rest = unquote(context.peer()).partition(":")
    # Each call may come from another port: it says nothing of who calls.
    host = rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else kind
    return host or "unknown"


def _peer(context: Context) -> Peer | None:
    found = context.auth_context().get("x509_pem_cert")
    return _read_peer(next(iter(found))) if found else None


def _count_as(reason: Refused) -> Refused:
    """Under a code of the list: whatever is counted has been there from the first scrape on, and is explained."""
    return reason if reason.code in REFUSALS else Refused("other", f"{reason.code}: {reason.words}")


def _tell(reason: Refused) -> Refused:
    # Enrolment tells less to a stranger than to our own log.
    if isinstance(reason, Refusal):
        return Refused(reason.public_code, reason.answer)
    return reason


def _explain_port(host: str, port: int, option: str) -> SettingError:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    seen, free = f"cannot listen on {host} port {port}", "a free port on this machine"
    why, advice = "it cannot be opened", f"check --host and {option}"
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
            probe.listen()
        except socket.gaierror:
            return SettingError(
                f"{seen}: this name is not known here", expected=_OUR_ADDRESS, advice=_CHOOSE_HOST
            )
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return SettingError(f"{seen}: {_NO_ADDRESS}", expected=_OUR_ADDRESS, advice=_CHOOSE_HOST)
            why, advice = _PORT_ERRORS.get(error.errno or 0, (error.strerror or why, advice))
    return SettingError(f"{seen}: {why}", expected=free, advice=advice.format(option=option))
