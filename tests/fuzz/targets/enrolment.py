"""What strangers send to be let in, and what a site is given: requests, certificates, cards, join files."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from pfl_common.errors import IdentityError, Refused
from pfl_common.identity import Authority, Keyring, Ledger, read_join_file, write_join_file
from pfl_common.identity.cards import EnvelopeKeys, check_request, open_card
from pfl_common.identity.certificates import load_certificates, load_key, load_request, peer_of
from pfl_common.identity.errors import BadRequest
from pfl_common.identity.join_file import Addresses
from pfl_common.identity.json_record import Record, Unreadable
from tests.fuzz.target import as_file, target

NOW = datetime.now(UTC)
NAME = "hospital_a"


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
        write_join_file(ledger.invite(NAME, NOW, addresses=addresses), self.join)
        self.key = self.keyring.key_pem


@cache
def federation() -> Federation:
    """Made once: its keys are new at each start."""
    return Federation()


@target("csr", BadRequest, IdentityError, seeds=lambda: [federation().csr])
def sign_request(content: bytes) -> None:
    """A certificate request, from a stranger."""
    load_request(content)
    federation().authority.sign_site(content, NAME, now=NOW)


@target("card_request", BadRequest, seeds=lambda: [federation().request])
def ask_for_card(content: bytes) -> None:
    """The request that goes beside it."""
    check_request(content, federation().csr, name=NAME, federation_id=federation().authority.federation_id)


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
        try:
            read()
        except (IdentityError, Refused):
            continue


@target(
    "join_file",
    IdentityError,
    seeds=lambda: [federation().join.read_bytes()],
    words=(b"0001-01-01T00:00:00+23:59",),
)
def read_invitation(content: bytes) -> None:
    """An invitation that came by mail."""
    file = as_file(content, "site.join")
    file.chmod(0o600)
    read_join_file(file, now=NOW)


@target("record", Unreadable, seeds=lambda: [b'{"a": "0001-01-01T00:00:00+23:59"}', b'{"a": 1}'])
def read_record(content: bytes) -> None:
    """One field of each kind."""
    record = Record.parse(content)
    for read in (record.text, record.number, record.secret, record.time):
        try:
            read("a")
        except Unreadable:
            continue
