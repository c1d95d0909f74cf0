"""Keys, certificates and requests, made here as somebody else would make them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pfl_common.errors import IdentityError
from pfl_common.identity import certificates
from pfl_common.identity.errors import BadRequest

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def name_of(*names: str, role: str = "site") -> x509.Name:
    """A subject with these names and one role."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
        ]
    )


def certify(
    key: Any, subject: x509.Name, by: Any, purpose: Any = ExtendedKeyUsageOID.CLIENT_AUTH
) -> x509.Certificate:
    """A certificate of ten days, signed by a key in the name `ca`."""
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(name_of("ca", role="ca"))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(BEGIN)
        .not_valid_after(BEGIN + timedelta(days=10))
    )
    if purpose is not None:
        made = made.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return made.sign(by, hashes.SHA256())


def request(key: Any, digest: Any) -> bytes:
    """A request of this key."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name_of("a"))
        .sign(key, digest)
        .public_bytes(Encoding.PEM)
    )


def test_what_is_left_of_a_life() -> None:
    """Ten days: after five a half, after fifteen less than nothing."""
    key = certificates.new_key()
    own = certify(key, name_of("a"), key)
    left = [certificates.life_left(own, BEGIN + timedelta(days=days)) for days in (0, 5, 10, 15)]
    assert [1.0, 0.5, 0.0, -0.5] == left


def test_a_certificate_is_for_one_name_and_one_role() -> None:
    """Two names would let its holder choose."""
    key = certificates.new_key()
    own, two, none = (
        certify(key, name_of(*names), key).public_bytes(Encoding.PEM) for names in (["a"], ["a", "b"], [])
    )
    assert certificates.Peer("a", "site") == certificates.peer_of(own)
    for wrong in (two, none):
        with pytest.raises(IdentityError, match="a certificate for"):
            certificates.peer_of(wrong)


def test_only_what_this_authority_signed_for_a_client() -> None:
    """Another's key in the same name, a server's purpose, no purpose at all."""
    ca, stranger, key = (certificates.new_key() for _ in range(3))
    issuer = certify(ca, name_of("ca", role="ca"), ca)
    certificates.check_issued(certify(key, name_of("a"), ca), [issuer])
    for wrong in (
        certify(key, name_of("a"), stranger),
        certify(key, name_of("a"), ca, ExtendedKeyUsageOID.SERVER_AUTH),
        certify(key, name_of("a"), ca, None),
    ):
        with pytest.raises(IdentityError, match="did not sign for a site"):
            certificates.check_issued(wrong, [issuer])


def test_a_strangers_request() -> None:
    """Of a P-256 key, whole, signed by that key, and not long."""
    key = certificates.new_key()
    good = request(key, hashes.SHA256())
    asked = certificates.request_key(certificates.load_request(good))
    assert certificates.key_fingerprint(key.public_key()) == certificates.key_fingerprint(asked)
    wrong = {
        "not P-256": request(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256()),
        "key is not": request(ed25519.Ed25519PrivateKey.generate(), None),
        "cannot be read": good[:100],
        "of 8193 bytes": good.ljust(8193),
    }
    for words, pem in wrong.items():
        with pytest.raises(BadRequest, match=words):
            certificates.load_request(pem)


def test_a_request_for_a_key_that_did_not_sign_it() -> None:
    """The last byte of the signature was changed."""
    key = certificates.new_key()
    der = bytearray(x509.load_pem_x509_csr(request(key, hashes.SHA256())).public_bytes(Encoding.DER))
    der[-1] ^= 1
    pem = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(BadRequest, match="signature is wrong"):
        certificates.load_request(pem)


def test_a_key_of_another_curve_is_none() -> None:
    """The error names the file and not its content."""
    own = certificates.new_key()
    read = certificates.load_key(certificates.key_to_pem(own), where="site.key")
    assert own.private_numbers() == read.private_numbers()
    foreign = certificates.key_to_pem(ec.generate_private_key(ec.SECP384R1()))
    for pem in (foreign, b"nothing"):
        with pytest.raises(IdentityError, match=r"^site\.key holds no readable P-256 key"):
            certificates.load_key(pem, where="site.key")


def test_a_moment_is_written_in_whole_seconds_of_universal_time() -> None:
    """One without a zone would mean another moment on another machine."""
    east = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert "2026-01-01T10:00:00+00:00" == certificates.whole_second(east).isoformat()
    with pytest.raises(ValueError, match="without time zone"):
        certificates.whole_second(datetime(2026, 1, 1))


def test_a_key_pair_does_not_show_its_key() -> None:
    """It may end in a log."""
    assert "KeyPair(...)" == repr(certificates.KeyPair(b"key", b"certificate"))
