"""Gets a site's certificate: the site makes its own key and proves that it was invited."""

from __future__ import annotations

import asyncio

import grpc

from pfl_client.connection.channel import Line, Patience, Tell, open_channel
from pfl_client.connection.link import NotAdmitted
from pfl_common.errors import Refused
from pfl_common.identity import Found, Invitation, Keyring
from pfl_common.wire import convert
from pfl_common.wire import enrolment_pb2 as pb


async def enrol_invited(
    keyring: Keyring,
    invitation: Invitation,
    *,
    patience: Patience | None = None,
    tell: Tell | None = None,
    roots: bytes | None = None,
) -> None:
    """Redeem an invitation; afterwards the keyring holds the site's certificate and card. `roots` signed the
    certificate of a proxy on the way: what comes through it is checked by the federation's own signatures.
    """
    csr_pem = keyring.csr(invitation.site)
    request = pb.EnrolRequest(
        way=pb.WAY_INVITATION,
        site=invitation.site,
        csr_pem=csr_pem,
        proof=invitation.prove(csr_pem),
        card_request=keyring.card_request(
            invitation.site, invitation.federation_id, hybrid=invitation.hybrid
        ),
    )
    address = invitation.addresses.enrolment
    line = _open(address, roots or invitation.ca_pem, tell)
    await _enrol(keyring, request, line=line, ca_pem=invitation.ca_pem, patience=patience)
    keyring.note_tried(invitation.id)


async def enrol_same_user(
    keyring: Keyring,
    found: Found,
    name: str,
    *,
    patience: Patience | None = None,
    tell: Tell | None = None,
) -> None:
    """Come in as the user whose coordinator this is; afterwards the keyring holds the site's certificate and card."""
    csr_pem = keyring.csr(name)
    request = pb.EnrolRequest(
        way=pb.WAY_SAME_USER,
        site=name,
        csr_pem=csr_pem,
        proof=found.prove(name, csr_pem),
        card_request=keyring.card_request(name, found.federation_id, hybrid=found.hybrid),
    )
    address = found.addresses.enrolment
    line = _open(address, found.ca_pem, tell)
    await _enrol(keyring, request, line=line, ca_pem=found.ca_pem, patience=patience)


def _open(address: str, ca_pem: bytes, tell: Tell | None) -> Line:
    line = Line(open_channel(address, grpc.ssl_channel_credentials(ca_pem)), address, _no_check)
    if tell is not None:
        line.tell = tell
    return line


async def _enrol(
    keyring: Keyring, request: pb.EnrolRequest, *, line: Line, ca_pem: bytes, patience: Patience | None
) -> None:
    seconds = (patience or Patience()).call_seconds
    try:
        said = await line.ask(f"{convert.ENROLMENT}/Enrol", request, pb.EnrolAnswer, seconds=seconds)
    except Refused as refused:
        raise NotAdmitted(refused.words, refused.code) from refused
    finally:
        await line.channel.close(None)
    await asyncio.to_thread(_keep, keyring, said, ca_pem)


def _keep(keyring: Keyring, said: pb.EnrolAnswer, ca_pem: bytes) -> None:
    keyring.store(said.certificate_pem, ca_pem)
    keyring.store_card(said.card)


def _no_check() -> None:
    """There is no certificate of our own yet that could be at fault."""
