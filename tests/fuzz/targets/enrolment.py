"""What strangers send to be let in, and what a site is given: requests, certificates, cards, join files."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from cryptography.x509.oid import ExtensionOID, NameOID

from pfl_common import sealing
from pfl_common.errors import IdentityError, Refused
from pfl_common.identity import Authority, Keyring, Ledger, read_join_file, write_join_file
from pfl_common.identity.cards import EnvelopeKeys, check_request, open_card
from pfl_common.identity.certificates import load_certificates, load_key, load_request, peer_of, request_key
from pfl_common.identity.errors import BadRequest
from pfl_common.identity.join_file import Addresses
from pfl_common.identity.json_record import Record, Unreadable
from pfl_common.identity.proofs import prove
from pfl_common.sealing import ContentKey
from pfl_common.wire import enrolment_pb2 as enrolment
from pfl_server.network.enrolment_port import EnrolmentServer
from pfl_server.network.requests import read_request
from tests.fuzz.bounds import ends_in
from tests.fuzz.target import as_file, target

NOW = datetime.now(UTC)
NAME = "hospital_a"
SECRET = bytes(range(32))
"""Of the discovery file."""


class Federation:
    """An authority, a site's keys, and what it asked for."""

    def __init__(self) -> None:
        folder = Path(mkdtemp(prefix="pfl-fuzz-"))
        self.authority = Authority.open_or_create(folder / "authority", now=NOW)
        self.keyring = Keyring.open(folder / "keys")
        self.csr = self.keyring.csr(NAME)
        self.request = self.keyring.card_request(NAME, self.authority.federation_id)
        self.certificate = self.authority.sign_site(self.csr, NAME, now=NOW)
        self.card = self.authority.sign_card(self.request, self.csr, name=NAME, now=NOW)
        ledger = Ledger(folder / "invitations", self.authority.ca_pem)
        addresses = Addresses("127.0.0.1:1", "127.0.0.1:2")
        self.join = folder / "site.join"
        self.invitation = ledger.invite(NAME, NOW, addresses=addresses)
        write_join_file(self.invitation, self.join)
        self.enrolling = EnrolmentServer(self.authority, ledger, local_secret=SECRET, clock=lambda: NOW)
        self.key = self.keyring.key_pem


@cache
def federation() -> Federation:
    """Made once: its keys are new at each start."""
    return Federation()


@target("csr", BadRequest, IdentityError, seeds=lambda: [federation().csr])
def sign_request(content: bytes) -> None:
    """A certificate request, from a stranger: of all that it says its key alone gets into a certificate."""
    key = request_key(load_request(content))
    signed = federation().authority.sign_site(content, NAME, now=NOW)
    (certificate,) = load_certificates(signed, where="x")
    subject = [(one.oid, one.value) for one in certificate.subject]
    assert [(NameOID.ORGANIZATIONAL_UNIT_NAME, "site"), (NameOID.COMMON_NAME, NAME)] == subject
    assert certificate.public_key() == key
    (honest,) = load_certificates(federation().certificate, where="x")
    plain = {one.oid: one.value for one in honest.extensions}
    found = {one.oid: one.value for one in certificate.extensions}
    assert plain.keys() == found.keys()
    for oid in plain.keys() - {ExtensionOID.SUBJECT_KEY_IDENTIFIER}:
        assert plain[oid] == found[oid]


@target("card_request", BadRequest, Refused, seeds=lambda: [federation().request])
def ask_for_card(content: bytes) -> None:
    """The request that goes beside it: for keys that are taken a parcel can be sealed."""
    made = federation()
    keys = check_request(content, made.csr, name=NAME, federation_id=made.authority.federation_id)
    signed = made.authority.sign_card(content, made.csr, name=NAME, now=NOW)
    card = open_card(signed, made.authority.ca_pem)
    assert (NAME, keys) == (card.name, card.keys)
    assert card.verifier is not None
    assert sealing.wrap(ContentKey(bytes(range(32))), card, header_hash=bytes(32))


def _enrolments() -> list[bytes]:
    made = federation()
    fields = {"site": NAME, "csr_pem": made.csr, "card_request": made.request}
    local = prove(SECRET, made.authority.federation_id, name=NAME, csr_pem=made.csr)
    invited = prove(made.invitation.secret, made.authority.federation_id, name=NAME, csr_pem=made.csr)
    return [
        enrolment.EnrolRequest(way="WAY_SAME_USER", proof=local, **fields).SerializeToString(),
        enrolment.EnrolRequest(way="WAY_INVITATION", proof=invited, **fields).SerializeToString(),
    ]


@target("enrolment", Refused, IdentityError, seeds=_enrolments, words=(b"coordinator", b"../x"))
def enrol(content: bytes) -> None:
    """The whole request: nobody but the invited site is let in, and under no other name than its own."""
    made = federation()
    said = read_request(enrolment.EnrolRequest, content)
    certificate, card = made.enrolling._admit(said)
    assert NAME == said.site == peer_of(certificate).name == open_card(card, made.authority.ca_pem).name
    assert said.proof in (
        prove(secret, made.authority.federation_id, name=NAME, csr_pem=said.csr_pem)
        for secret in (SECRET, made.invitation.secret)
    )


@target("card", Refused, seeds=lambda: [federation().card])
def read_card(content: bytes) -> None:
    """A card, from a coordinator; only the one that was signed is taken."""
    open_card(content, federation().authority.ca_pem)
    assert content == federation().card


@target("certificate", IdentityError, Refused, seeds=lambda: [federation().certificate, federation().key])
def read_certificate(content: bytes) -> None:
    """The certificate that a site is given, and keys in files."""
    for read in (
        lambda: load_certificates(content, where="x"),
        lambda: peer_of(content),
        lambda: load_key(content, where="x"),
        lambda: EnvelopeKeys.from_pem(content, where="x"),
    ):
        with ends_in(IdentityError, Refused):
            read()


@target(
    "join_file",
    IdentityError,
    seeds=lambda: [federation().join.read_bytes()],
    words=(b"0001-01-01T00:00:00+23:59",),
)
def read_invitation(content: bytes) -> None:
    """An invitation that came by mail: what is taken can be written again, and is the same then."""
    file = as_file(content, "site.join")
    file.chmod(0o600)
    invitation = read_join_file(file, now=NOW)
    write_join_file(invitation, file, replace=True)
    assert read_join_file(file, now=NOW) == invitation


@target("record", Unreadable, seeds=lambda: [b'{"a": "0001-01-01T00:00:00+23:59"}', b'{"a": 1}'])
def read_record(content: bytes) -> None:
    """One field of each kind."""
    record = Record.parse(content)
    for read in (record.text, record.number, record.secret, record.time):
        with ends_in(Unreadable):
            read("a")
