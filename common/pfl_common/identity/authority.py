"""The federation's own certificate authority, which certifies its sites without any outside party.

One file holds key and certificate together, so that no crash can leave one without the other. Sites get
short-lived certificates and renew them; there is no list of revoked ones to keep or to fetch.
"""

import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pfl_common.errors import IdentityError, Refused
from pfl_common.files import private
from pfl_common.identity import cards, certificates
from pfl_common.identity.cards import Card, EnvelopeKeys
from pfl_common.identity.certificates import KeyPair
from pfl_common.identity.names import check_site_name

AUTHORITY_DAYS = 3653
SERVER_DAYS = 365
SITE_DAYS = 30
OPERATOR_DAYS = 30
RENEWED_BELOW = 1 / 3

_AUTHORITY_FILE = "authority.pem"
_OPERATOR_FILE = "operator.pem"
_COORDINATOR_FILE = "coordinator.seal"
_CARDS_FOLDER = "cards"
_ALWAYS_SERVED = ("localhost", "127.0.0.1", "::1")
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class _Leaf:
    """The content of one certificate."""

    name: str
    role: str
    purpose: x509.ObjectIdentifier
    alternative_names: tuple[x509.GeneralName, ...]
    days: int


class Authority:
    """The federation's certificate authority, kept in a private folder on the coordinator."""

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._folder = folder
        self._key = key
        self._certificate = certificate
        self._cards: dict[str, tuple[int, Card]] = {}

    @classmethod
    def open_or_create(cls, folder: Path, *, now: datetime) -> "Authority":
        """Open the authority kept in this folder, or make one; two programs at once make only one."""
        private.make_folder(folder)
        with private.locked(folder):
            path = folder / _AUTHORITY_FILE
            if not path.exists():
                key = certificates.new_key()
                private.write(path, certificates.key_to_pem(key) + _to_pem(_self_signed(key, now)))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        """Open the authority kept in this folder; it must be there."""
        path = folder / _AUTHORITY_FILE
        if not path.exists():
            raise IdentityError(
                f"no certificate authority in {folder}",
                expected=f"the file {_AUTHORITY_FILE} of a federation",
                advice="start pfl-server once with this state folder, or name the right one with --state",
            )
        private.check_folder(folder)
        content = private.read(path)
        key = certificates.load_key(content, where=str(path))
        certificate = certificates.load_certificates(content, where=str(path))[0]
        if certificate.public_key() != key.public_key():
            raise IdentityError(
                f"key and certificate in {path} do not belong together",
                expected="the pair that was written there",
                advice="restore the file from a backup",
            )
        return cls(folder, key, certificate)

    @property
    def ca_pem(self) -> bytes:
        """The authority's certificate: what a site needs to know its coordinator."""
        return _to_pem(self._certificate)

    @property
    def federation_id(self) -> str:
        """The short name of this federation, made from its certificate."""
        return certificates.federation_id(self.ca_pem)

    def server_certificate(self, hosts: Sequence[str], *, now: datetime, days: int = SERVER_DAYS) -> KeyPair:
        """A fresh key and certificate for the coordinator's ports, for these names and this machine's own."""
        names = tuple(_host_name(host) for host in dict.fromkeys([*hosts, *_ALWAYS_SERVED]))
        key = certificates.new_key()
        leaf = _Leaf("coordinator", "coordinator", ExtendedKeyUsageOID.SERVER_AUTH, names, days)
        return KeyPair(certificates.key_to_pem(key), self._issue(leaf, key.public_key(), now))

    def sign_site(self, csr_pem: bytes, name: str, *, now: datetime, days: int = SITE_DAYS) -> bytes:
        """A certificate that makes the request's key the site `name`, whatever the request says."""
        check_site_name(name)
        public_key = certificates.request_key(certificates.load_request(csr_pem))
        leaf = _Leaf(name, "site", ExtendedKeyUsageOID.CLIENT_AUTH, (self._uri("site", name),), days)
        return self._issue(leaf, public_key, now)

    def sign_card(
        self, request: bytes, csr_pem: bytes, *, name: str, now: datetime, days: int = SITE_DAYS
    ) -> bytes:
        """A card that makes the keys of this request the site `name`'s; the certificate request vouches.

        The coordinator keeps it: nobody has to show a card to be known by it.
        """
        check_site_name(name)
        public = cards.check_request(request, csr_pem, name=name, federation_id=self.federation_id)
        card = self._card(name, public, now=now, days=days)
        private.write(private.make_folder(self._folder / _CARDS_FOLDER) / f"{name}.card", card)
        return card

    def card_of(self, name: str, *, now: datetime) -> Card:
        """The card of a site that has enrolled; refused when there is none or its time is over."""
        path = self._folder / _CARDS_FOLDER / f"{check_site_name(name)}.card"
        try:
            written = path.stat().st_mtime_ns
        except FileNotFoundError:
            self._cards.pop(name, None)
            words = f"no card of {name} is known here; expected: a site that enrolled; invite it again"
            raise Refused("card", words) from None
        kept = self._cards.get(name)
        # Checking the authority's own signature takes longer than many a call: once for each card that is written.
        if kept is None or kept[0] != written:
            kept = written, cards.read_card(private.read(path), self.ca_pem, name=name, now=now)
            self._cards[name] = kept
        kept[1].check_time(now)
        return kept[1]

    def coordinator_keys(self) -> EnvelopeKeys:
        """The coordinator's own keys to sign and to receive with, made at the first call."""
        path = self._folder / _COORDINATOR_FILE
        with private.locked(self._folder):
            if not path.exists():
                private.write(path, EnvelopeKeys.generate().to_pem())
            return EnvelopeKeys.from_pem(private.read(path), where=str(path))

    def coordinator_card(self, *, now: datetime, days: int = SERVER_DAYS) -> bytes:
        """The coordinator's card, made anew at each call for the same keys."""
        return self._card(cards.COORDINATOR, self.coordinator_keys().public(), now=now, days=days)

    def operator_certificate(self, *, now: datetime) -> KeyPair:
        """The key and certificate of `pfl status` and `pfl stop`, made anew near their end."""
        path = self._folder / _OPERATOR_FILE
        with private.locked(self._folder):
            if path.exists():
                kept = _pair(private.read(path), path)
                if self._still_good(kept, now):
                    return kept
            fresh = self._new_operator(now)
            private.write(path, fresh.key_pem + fresh.certificate_pem)
            return fresh

    def _still_good(self, pair: KeyPair, now: datetime) -> bool:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        ours = certificate.issuer == self._certificate.subject
        return ours and RENEWED_BELOW < certificates.life_left(certificate, now) <= 1

    def _new_operator(self, now: datetime) -> KeyPair:
        key = certificates.new_key()
        uri = self._uri("operator", "operator")
        leaf = _Leaf("operator", "operator", ExtendedKeyUsageOID.CLIENT_AUTH, (uri,), OPERATOR_DAYS)
        return KeyPair(certificates.key_to_pem(key), self._issue(leaf, key.public_key(), now))

    def _uri(self, role: str, name: str) -> x509.UniformResourceIdentifier:
        # Strict verifiers want an alternative name in every certificate, and a site has no host name.
        return x509.UniformResourceIdentifier(f"pfl://{self.federation_id}/{role}/{name}")

    def _issue(self, leaf: _Leaf, public_key: ec.EllipticCurvePublicKey, now: datetime) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(leaf.name, leaf.role))
            .issuer_name(self._certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(certificates.whole_second(now) - certificates.CLOCK_SKEW)
            .not_valid_after(self._end(now, leaf.days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([leaf.purpose]), critical=False)
            .add_extension(x509.SubjectAlternativeName(leaf.alternative_names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(_authority_key(self._key), critical=False)
        )
        return _to_pem(builder.sign(self._key, hashes.SHA256()))

    def _card(self, name: str, public: tuple[bytes, bytes], *, now: datetime, days: int) -> bytes:
        starts = certificates.whole_second(now) - certificates.CLOCK_SKEW
        card = Card(name, *public, self.federation_id, starts, self._end(now, days))
        return cards.issue(card, self._key)

    def _end(self, now: datetime, days: int) -> datetime:
        end = self._certificate.not_valid_after_utc
        if now >= end:
            raise IdentityError(
                f"the federation's own CA certificate expired on {end:%Y-%m-%d}",
                expected=f"one that is valid today, {now:%Y-%m-%d}",
                advice="check the clock; if it is right, start a new federation and invite the sites again",
            )
        return min(certificates.whole_second(now) + timedelta(days=days), end)


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"pfl federation {secrets.token_hex(4)}")])
    start = certificates.whole_second(now) - certificates.CLOCK_SKEW
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_key(key), critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _subject(name: str, role: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if len(host) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in host.split(".")):
        raise IdentityError(
            f"the host name {host!r}",
            expected="a DNS name or an IP address, without scheme or port",
            advice="give what sites dial, such as coordinator.example.org",
        )
    return x509.DNSName(host)


def _pair(content: bytes, path: Path) -> KeyPair:
    key = certificates.load_key(content, where=str(path))
    certificate = certificates.load_certificates(content, where=str(path))[0]
    return KeyPair(certificates.key_to_pem(key), _to_pem(certificate))


def _to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)
