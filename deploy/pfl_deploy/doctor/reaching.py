"""Checks whether a coordinator can be reached: this user's on this machine, or the one an invitation names."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pfl_client.connection import clock_check
from pfl_client.connection.channel import is_loopback
from pfl_common.errors import PflError
from pfl_common.identity import Found, Invitation, discovery, read_join_file
from pfl_common.identity.certificates import load_certificates
from pfl_deploy.doctor.machine import look_at_room
from pfl_deploy.doctor.result import Check, error, guarded, of_error, ok, warning
from pfl_deploy.operator import commands
from pfl_deploy.operator.status_text import tell_place

DIAL_SECONDS = 5.0
SOON_DAYS = 14


def examine_here(server: str | None) -> Iterator[Check]:
    """The coordinators of this user on this machine."""
    found = discovery.list_running()
    if server is not None:
        found = [discovery.find(server)]
    if not found:
        yield ok("coordinator", f"none of this user runs here (looked in {discovery.coordinators_folder()})")
    for one in found:
        yield from guarded("coordinator", partial(_examine_found, one))


def _examine_found(found: Found) -> Iterator[Check]:
    about = f"coordinator {found.federation_id}"
    yield from _end_of_authority(about, found.ca_pem)
    yield look_at_room(f"{about}: disk of its state", found.state_folder)
    explained = clock_check.explain(found.addresses.enrolment, found.ca_pem, now=datetime.now(UTC))
    if explained is not None:
        yield of_error(f"{about}: clock", explained)
    try:
        status = commands.status(found.federation_id)
    except PflError as silent:
        yield of_error(about, silent)
        return
    here = sum(site.state == "here" for site in status.sites)
    place = tell_place(status)
    words = f"answers at {found.addresses.control}: {status.run or 'no run yet'}, {status.status}"
    yield ok(about, f"{words}{f', {place}' if place else ''}, {here} of {len(status.sites)} sites here")


def _end_of_authority(about: str, ca_pem: bytes) -> Iterator[Check]:
    end = load_certificates(ca_pem, where="the federation's CA")[0].not_valid_after_utc
    days = (end - datetime.now(UTC)).days
    if days < SOON_DAYS:
        yield error(
            f"{about}: authority",
            f"its certificate authority ends on {end:%Y-%m-%d}",
            advice="begin a new federation: another --state, and new invitations",
        )


def examine_invitation(file: Path) -> Iterator[Check]:
    """A join file from end to end: readable, in time, and the machine it names answers as the one that wrote it."""
    about, now = f"--join {file.name}", datetime.now(UTC)
    invitation = read_join_file(file, now=now)
    days = (invitation.expires - now).days
    yield from _begin_of_authority(about, invitation.ca_pem, now)
    yield ok(about, f"for the site {invitation.site}, good for {days} more day{'s' if days != 1 else ''}")
    if file.stat().st_mode & 0o077:
        advice = f"chmod 600 {file}: a person who reads it can come in once in this site's name"
        yield warning(about, "others of this machine can read the file", advice=advice)
    addresses = invitation.addresses
    for port, address in (("enrolment", addresses.enrolment), ("control", addresses.control)):
        yield from _reach(f"{about}: {port} port", address, invitation.ca_pem)
    yield from _known_here(about, invitation)


def _begin_of_authority(about: str, ca_pem: bytes, now: datetime) -> Iterator[Check]:
    begins = load_certificates(ca_pem, where="the invitation's CA")[0].not_valid_before_utc
    if now < begins:
        words = (
            f"its federation begins at {begins:%Y-%m-%d %H:%M} UTC, and here it is {now:%Y-%m-%d %H:%M} UTC"
        )
        yield error(about, words, advice="set this machine's clock (look at it with: date -u)", code=75)


def _known_here(about: str, invitation: Invitation) -> Iterator[Check]:
    """Whether a coordinator of this machine answers at the invitation's address, and is of another federation."""
    for found in discovery.list_running():
        same = invitation.addresses.control in {
            address.control for address in (found.addresses, *map(found.addresses.under, found.names))
        }
        if same and found.federation_id != invitation.federation_id:
            advice = f"ask its operator for: pfl invite {invitation.site}"
            words = f"it is of the federation {invitation.federation_id}, and at its address is {found.federation_id}"
            yield error(about, words, advice=advice, code=2)


def _reach(about: str, address: str, ca_pem: bytes) -> Iterator[Check]:
    try:
        shown = _shake_hands(address, ca_pem)
    except ssl.SSLCertVerificationError as refused:
        explained = clock_check.explain(address, ca_pem, now=datetime.now(UTC))
        if explained is not None:
            yield of_error(about, explained)
            return
        advice = (
            "if a proxy opens TLS on the way, have this address exempted; if the coordinator was set up anew, "
            "ask its operator for: pfl invite NAME --again"
        )
        words = (
            f"{address} answers with a certificate that is not this federation's: {refused.verify_message}"
        )
        yield error(about, words, advice=advice, code=2)
    except OSError as failed:
        yield _not_reached(about, address, failed)
    else:
        yield ok(about, f"{address} answers, {shown}")


def _shake_hands(address: str, ca_pem: bytes) -> str:
    """Dial and look at the certificate; nothing is said."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.create_default_context(cadata=ca_pem.decode("ascii"))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), timeout=DIAL_SECONDS) as line,
        context.wrap_socket(line, server_hostname=host) as secured,
    ):
        return str(secured.version())


def _not_reached(about: str, address: str, failed: OSError) -> Check:
    why = "no answer in time" if isinstance(failed, TimeoutError) else failed.strerror or str(failed)
    words = f"{address} cannot be reached directly: {why}"
    if _goes_through_proxy(address):
        advice = (
            "the programs go through the proxy of the environment; ask for a CONNECT to this address there"
        )
        return warning(about, words, advice=advice)
    advice = (
        "ask the operator whether the coordinator runs, and your firewall's keeper for outgoing TLS to it"
    )
    return error(about, words, advice=advice, code=75)


def _goes_through_proxy(address: str) -> bool:
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    host = address.rpartition(":")[0].strip("[]")
    named = any(name in proxies for name in ("https", "http", "grpc"))
    return named and not is_loopback(address) and not proxy_bypass(host)
