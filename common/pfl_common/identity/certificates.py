"""Reads and makes keys, certificates and requests; every key of the federation's TLS is P-256."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pfl_common.errors import IdentityError
from pfl_common.identity.errors import BadRequest

LARGEST_REQUEST = 8192
CLOCK_SKEW = timedelta(minutes=5)
"""So far two clocks may differ; of a life of minutes it is a tenth."""
FEDERATION_ID_DIGITS = 16

_SUCCESSOR = re.compile(rf"pfl://([0-9a-f]{{{FEDERATION_ID_DIGITS}}})/authority")


class KeyPair(NamedTuple):
    """A private key and the certificate for it, both as PEM."""

    key_pem: bytes
    certificate_pem: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"  # a representation can end in a log


@dataclass(frozen=True)
class Peer:
    """The holder of a certificate: a name, and its role as site, operator or coordinator."""

    name: str
    role: str


def new_key() -> ec.EllipticCurvePrivateKey:
    """A fresh private key from the operating system's randomness."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as text, for a private file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_key(pem: bytes, *, where: str) -> ec.EllipticCurvePrivateKey:
    """Read a private key; `where` names the file in the error."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not _is_p256(key.public_key()):
        raise IdentityError(
            f"{where} holds no readable P-256 key",
            expected="the private key that was written there",
            advice="restore it from a backup, or move it away to begin anew",
        )
    return key


def load_certificates(pem: bytes, *, where: str) -> list[x509.Certificate]:
    """Read one or more certificates; `where` names their source in the error."""
    try:
        found = x509.load_pem_x509_certificates(pem)
        for certificate in found:
            _read_whole(certificate)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension):
        raise IdentityError(
            f"{where} holds no readable certificate",
            expected="a certificate in PEM form",
            advice="restore the file from its source and try again",
        ) from None
    return found


def _read_whole(certificate: x509.Certificate) -> None:
    """The library reads a part when it is asked for: here, where its errors are expected, rather than later."""
    for part in ("subject", "issuer", "extensions", "not_valid_before_utc", "not_valid_after_utc"):
        getattr(certificate, part)
    certificate.public_key()


def load_request(csr_pem: bytes) -> x509.CertificateSigningRequest:
    """Read a site's certificate request; it comes from a stranger, so size, signature and key are checked."""
    if len(csr_pem) > LARGEST_REQUEST:
        raise _bad_request(f"a certificate request of {len(csr_pem)} bytes")
    try:
        request = x509.load_pem_x509_csr(csr_pem)
        signed, key = request.is_signature_valid, request.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise _bad_request("a certificate request that cannot be read") from None
    if not signed:
        raise _bad_request("a certificate request whose signature is wrong")
    if not _is_p256(key):
        raise _bad_request("a certificate request whose key is not P-256")
    return request


def request_key(request: x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    """The P-256 key a checked request asks a certificate for."""
    key = request.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise _bad_request("a certificate request whose key is not P-256")
    return key


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key, as hexadecimal digits."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize().hex()


def federation_id(ca_pem: bytes) -> str:
    """The short name of a federation: the first digits of its CA certificate's fingerprint."""
    return federation_of(load_certificates(ca_pem, where="the federation's CA")[0])


def federation_of(authority: x509.Certificate) -> str:
    """As `federation_id`, from a certificate that is parsed already.

    An authority that took over from another one names that one's federation: by itself that proves nothing, since
    whoever trusts a certificate was given it by somebody it trusts.
    """
    try:
        names = authority.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    said = (_SUCCESSOR.fullmatch(uri) for uri in names.get_values_for_type(x509.UniformResourceIdentifier))
    taken_over = next((found[1] for found in said if found), "")
    return taken_over or authority.fingerprint(hashes.SHA256()).hex()[:FEDERATION_ID_DIGITS]


def successor_name(federation: str) -> x509.UniformResourceIdentifier:
    """The name by which an authority that takes over says whose federation it is."""
    return x509.UniformResourceIdentifier(f"pfl://{federation}/authority")


def peer_of(certificate_pem: bytes) -> Peer:
    """Who a certificate that TLS has already verified speaks for: its name and role."""
    return holder_of(load_certificates(certificate_pem, where="the peer's certificate")[0])


def holder_of(certificate: x509.Certificate) -> Peer:
    """As `peer_of`, from a certificate that is parsed already."""
    return Peer(
        name=_only(certificate.subject, NameOID.COMMON_NAME),
        role=_only(certificate.subject, NameOID.ORGANIZATIONAL_UNIT_NAME),
    )


def check_issued(certificate: x509.Certificate, issuers: Sequence[x509.Certificate]) -> None:
    """Refuse a certificate that none of these authorities signed for a client of its federation."""
    if not any(_is_clients(certificate, issuer) for issuer in issuers):
        raise IdentityError(
            "a certificate that this federation's CA did not sign for a site",
            expected=f"one signed by {issuers[0].subject.rfc4514_string()}",
            advice="check that the address and the invitation belong to the same federation",
        )


def _is_clients(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in purposes


def skew_of(life: timedelta) -> timedelta:
    """How long before its making a certificate of this life is valid: clocks differ."""
    return min(CLOCK_SKEW, life / 10)


def whole(life: timedelta) -> timedelta:
    """A life as certificates count it: whole seconds, at least one."""
    return timedelta(seconds=max(1, round(life.total_seconds())))


def life_left(certificate: x509.Certificate, now: datetime) -> float:
    """Which part of a certificate's life is left: 1 when fresh, 0 or less when expired."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return (certificate.not_valid_after_utc - now) / life


def whole_second(moment: datetime) -> datetime:
    """A moment as certificates write it: universal time without fractions of a second."""
    if moment.tzinfo is None:
        raise ValueError("a moment without time zone was given; expected one with: use datetime.now(UTC)")
    return moment.astimezone(UTC).replace(microsecond=0)


def _is_p256(key: object) -> bool:
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def _only(subject: x509.Name, oid: x509.ObjectIdentifier) -> str:
    values = [attribute.value for attribute in subject.get_attributes_for_oid(oid)]
    if len(values) != 1 or not isinstance(values[0], str):
        raise IdentityError(
            f"a certificate for {subject.rfc4514_string()!r}",
            expected="one name and one role, as this federation's CA writes them",
            advice="enrol again with a new invitation",
        )
    return values[0]


def _bad_request(seen: str) -> BadRequest:
    return BadRequest(
        seen,
        expected=f"a signed PEM request of at most {LARGEST_REQUEST} bytes for a P-256 key",
        advice="let pfl-client make the request; check that both sides run the same release",
    )
