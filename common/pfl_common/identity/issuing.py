"""Makes the certificates of a federation: the authority's own, and those it signs."""

from __future__ import annotations

import ipaddress
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from pfl_common.errors import IdentityError
from pfl_common.identity import certificates

AUTHORITY_DAYS = 3653

_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_BRING_ANOTHER = (
    "ask for a certificate of an intermediate authority with a P-256 key, basicConstraints CA:TRUE and keyUsage "
    "keyCertSign, that nothing else is signed with"
)


@dataclass(frozen=True, repr=False)
class Signer:
    """An authority: its private key, and the certificate for it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def to_pem(self) -> bytes:
        """Both in one text, so that no crash can leave one without the other."""
        return certificates.key_to_pem(self.key) + to_pem(self.certificate)

    def __repr__(self) -> str:
        return "Signer(...)"  # a representation can end in a log


@dataclass(frozen=True)
class Leaf:
    """The content of one certificate."""

    name: str
    role: str
    purpose: x509.ObjectIdentifier
    alternative_names: tuple[x509.GeneralName, ...]
    life: timedelta


def read_signer(content: bytes, *, where: str) -> Signer:
    """Read an authority; `where` names the file in the error."""
    key = certificates.load_key(content, where=where)
    certificate = certificates.load_certificates(content, where=where)[0]
    if certificate.public_key() != key.public_key():
        raise IdentityError(
            f"key and certificate in {where} do not belong together",
            expected="the pair that was written there",
            advice="restore the file from a backup",
        )
    return Signer(key, certificate)


def new_signer(
    now: datetime, *, federation: str = "", key: ec.EllipticCurvePrivateKey | None = None
) -> Signer:
    """A new authority that nobody stands above; with `federation` the one that takes over there."""
    key = key or certificates.new_key()
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
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    if federation:
        names = x509.SubjectAlternativeName([certificates.successor_name(federation)])
        builder = builder.add_extension(names, critical=False)
    return Signer(key, builder.sign(key, hashes.SHA256()))


def check_brought(signer: Signer, now: datetime) -> None:
    """Refuse a certificate from elsewhere that cannot be a federation's authority."""
    found = signer.certificate
    try:
        is_authority = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        may_sign = found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        is_authority = may_sign = False
    if not (is_authority and may_sign):
        raise IdentityError(
            f"the certificate of {found.subject.rfc4514_string()!r} is not that of an authority",
            expected="one that may sign others",
            advice=_BRING_ANOTHER,
        )
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        raise IdentityError(
            f"the authority's certificate is valid from {found.not_valid_before_utc:%Y-%m-%d} to "
            f"{found.not_valid_after_utc:%Y-%m-%d}",
            expected=f"one that is valid now, {now:%Y-%m-%d}",
            advice="ask for a new one, or set this machine's clock",
        )


def issue(signer: Signer, leaf: Leaf, public_key: ec.EllipticCurvePublicKey, now: datetime) -> bytes:
    """A certificate for a key, signed by the authority."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(leaf.name, leaf.role))
        .issuer_name(signer.certificate.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(certificates.whole_second(now) - certificates.skew_of(leaf.life))
        .not_valid_after(end_of(signer, now, leaf.life))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([leaf.purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(leaf.alternative_names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(_authority_key(signer), critical=False)
    )
    return to_pem(builder.sign(signer.key, hashes.SHA256()))


def end_of(signer: Signer, now: datetime, life: timedelta) -> datetime:
    """When a certificate that is made now ends: never after its authority's own."""
    end = signer.certificate.not_valid_after_utc
    if now >= end:
        raise IdentityError(
            f"the federation's own CA certificate expired on {end:%Y-%m-%d}",
            expected=f"one that is valid today, {now:%Y-%m-%d}",
            advice="check the clock; if it is right, start a new federation and invite the sites again",
        )
    return min(certificates.whole_second(now) + certificates.whole(life), end)


def host_name(host: str) -> x509.GeneralName:
    """A host as certificates name it."""
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


def to_pem(certificate: x509.Certificate) -> bytes:
    """A certificate as text."""
    return certificate.public_bytes(Encoding.PEM)


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


def _authority_key(signer: Signer) -> x509.AuthorityKeyIdentifier:
    try:
        # As the certificate itself says it: another authority may have computed it otherwise.
        said = signer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(said)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())


def _subject(name: str, role: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
