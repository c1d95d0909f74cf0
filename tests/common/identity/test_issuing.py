"""Certificates as others read them: how long they are good, and which authorities are taken from elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from pfl_common.errors import IdentityError
from pfl_common.identity import Authority, Keyring, Lives, certificates, issuing
from pfl_common.identity.issuing import Signer

DAY = timedelta(days=1)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def sign_intermediate(now: datetime, *, ca: bool = True, days: int = 90) -> Signer:
    """An authority as a company's IT makes it for us: signed by the company's own, its key id not as we compute it."""
    company, key = issuing.new_signer(now), certificates.new_key()
    usage = issuing._key_usage(authority=ca)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named("Hospital Federated Learning CA"))
        .issuer_name(company.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(certificates.whole_second(now - DAY))
        .not_valid_after(certificates.whole_second(now + days * DAY))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier(b"of our own devising"), critical=False)
    )
    return Signer(key, builder.sign(company.key, hashes.SHA256()))


def test_a_short_life_begins_a_tenth_before(authority: Authority, keyring: Keyring, now: datetime) -> None:
    """Five minutes for clocks that differ would be most of a life of minutes, and its two thirds already over."""
    authority.lives = Lives(site=timedelta(seconds=60), server=timedelta(seconds=60))
    keyring.store(authority.sign_site(keyring.csr("hospital_a"), "hospital_a", now=now), authority.ca_pem)
    whole = now.replace(microsecond=0)
    found = x509.load_pem_x509_certificate(keyring.certificate_pem)
    assert (whole - timedelta(seconds=6), whole + timedelta(seconds=60)) == (
        found.not_valid_before_utc,
        found.not_valid_after_utc,
    )
    assert not keyring.needs_renewal(now)
    due = keyring.renewal_due(now)
    assert 37 < due < 39
    assert keyring.needs_renewal(now + timedelta(seconds=due + 0.1))


def test_an_intermediate_authority_of_the_company(tmp_path: Path, now: datetime) -> None:
    """It becomes the federation's own: what it signs names it as its own certificate does, and never outlives it."""
    brought = sign_intermediate(now, days=10)
    authority = Authority.open_or_create(tmp_path / "federation", now=now, brought=brought)
    keyring = Keyring.open(tmp_path / "site")
    keyring.store(authority.sign_site(keyring.csr("hospital_a"), "hospital_a", now=now), authority.ca_pem)
    found = x509.load_pem_x509_certificate(keyring.certificate_pem)
    said = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert b"of our own devising" == said.key_identifier
    assert found.not_valid_after_utc == brought.certificate.not_valid_after_utc
    again = Authority.open_or_create(tmp_path / "federation", now=now, brought=brought)
    assert authority.ca_pem == again.ca_pem
    with pytest.raises(IdentityError, match="--ca-cert"):
        Authority.open_or_create(tmp_path / "federation", now=now, brought=sign_intermediate(now))


def test_what_cannot_be_an_authority(tmp_path: Path, now: datetime) -> None:
    """A certificate for a server, or one whose time is over: refused before anything is written."""
    for brought in (sign_intermediate(now, ca=False), sign_intermediate(now - 100 * DAY)):
        with pytest.raises(IdentityError):
            Authority.open_or_create(tmp_path / "federation", now=now, brought=brought)
    assert not (tmp_path / "federation" / "authority.pem").exists()
