"""A certificate for this machine and the authority that signed it, as Flower's guide makes them by hand."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LIFETIME = datetime.timedelta(days=2)


@dataclass(frozen=True)
class Certificates:
    """Where the three files lie."""

    authority: Path
    certificate: Path
    key: Path


def issue(folder: Path, host: str) -> Certificates:
    """Make an authority and one server certificate, for an address beside this machine's own."""
    folder.mkdir()
    files = Certificates(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = (
        _describe("no-op authority", root_key)
        .issuer_name(_name("no-op authority"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    own = [x509.IPAddress(ipaddress.ip_address(one)) for one in sorted({"127.0.0.1", host})]
    addresses = [*own, x509.DNSName("localhost")]
    leaf = (
        _describe("localhost", key)
        .issuer_name(root.subject)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    files.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(_encode(key))
    return files


def _describe(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _encode(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
