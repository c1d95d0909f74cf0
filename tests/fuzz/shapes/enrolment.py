"""Certificate requests, card requests and cards as strangers could make them: well signed, and odd in what they say."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from functools import cache
from typing import Any  # JSON has no narrower type

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import strategies as st

from pfl_common.identity import cards
from pfl_common.identity.certificates import load_key
from pfl_common.wire import enrolment_pb2 as enrolment
from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.shapes.calls import messages_nearly
from tests.fuzz.targets.enrolment import NAME, NOW, federation
from tests.fuzz.targets.enrolment import _enrolments as enrolments

_USAGE = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
EXTENSIONS = (
    x509.BasicConstraints(ca=True, path_length=None),
    x509.KeyUsage(**dict.fromkeys(_USAGE, True)),
    x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]),
    x509.SubjectAlternativeName(
        [x509.DNSName("localhost"), x509.UniformResourceIdentifier("pfl://x/authority")]
    ),
    x509.SubjectAlternativeName([x509.DNSName("a" * 250 + ".example")] * 20),
    x509.NameConstraints([x509.DNSName("example")], None),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4.5"), b"\xff" * 40),
    x509.UnrecognizedExtension(NameOID.COMMON_NAME, b""),
)
_OIDS = (
    NameOID.COMMON_NAME,
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.EMAIL_ADDRESS,
    NameOID.SURNAME,
    x509.ObjectIdentifier("1.2.3.4"),
)
_SUBJECTS = st.lists(
    st.tuples(
        st.sampled_from(_OIDS),
        st.sampled_from(
            [NAME, "coordinator", "operator", "site", "hospital_b", "\0", "x" * 64, "a\nb", "\u202ex"]
        )
        | odd.words.filter(lambda word: 1 <= len(word.encode()) <= 64),
    ),
    min_size=1,
    max_size=5,
)
_PARTS = st.tuples(
    _SUBJECTS,
    st.lists(st.tuples(odd.one_of(EXTENSIONS), st.booleans()), max_size=3),
    st.sampled_from([*["own"] * 6, "other curve", "RSA", "Ed25519"]),
    st.sampled_from([hashes.SHA256(), hashes.SHA384(), hashes.SHA512(), hashes.SHA3_256(), hashes.SHA224()]),
)


@cache
def _keys() -> dict[str, Any]:
    return {
        "own": load_key(federation().key, where="x"),
        "other curve": ec.generate_private_key(ec.SECP384R1()),
        "RSA": rsa.generate_private_key(65537, 2048),
        "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    }


def _make_request(parts: tuple[Any, Any, str, Any]) -> bytes:
    subject, extensions, key, digest = parts
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder, seen = x509.CertificateSigningRequestBuilder().subject_name(name), set[object]()
    for extension, critical in extensions:
        if extension.oid not in seen:
            builder = builder.add_extension(extension, critical)
            seen.add(extension.oid)
    signed = builder.sign(_keys()[key], None if key == "Ed25519" else digest)
    return signed.public_bytes(Encoding.PEM)


def _spoil(made: tuple[bytes, tuple[str, int, int]]) -> bytes:
    pem, (how, place, bit) = made
    body = base64.b64decode(b"".join(pem.split(b"\n")[1:-2]))
    match how:
        case "flip":
            at = place % len(body)
            body = body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]
        case "cut":
            body = body[: place % len(body)]
        case "longer":
            body += bytes(place % 99)
        case "twice":
            return pem + pem
        case "text around":
            return b"x" * (place % 9000) + b"\n" + pem + b"-----BEGIN CERTIFICATE-----\n"
        case "other words":
            return pem.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST")
        case _:
            return pem
    lines = base64.encodebytes(body)
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + lines + b"-----END CERTIFICATE REQUEST-----\n"


@shape("csr")
def build_request() -> Shape:
    """A request for a certificate of more than a site, or for a key of another kind, or cut."""
    ways = st.tuples(
        st.sampled_from([*[""] * 8, "flip", "flip", "cut", "longer", "twice", "text around", "other words"]),
        st.integers(0, 20_000),
        st.integers(0, 7),
    )
    return st.tuples(_PARTS.map(_make_request), ways).map(_spoil)


POINTS = (bytes(32), bytes([1, *bytes(31)]), b"\xff" * 32, bytes([0xEC, *b"\xff" * 30, 0x7F]), bytes(31))
"""Keys of X25519 and Ed25519 for which nothing can be sealed, or which are no keys."""


@shape("card_request")
def build_card_request() -> Shape:
    """Signed by both its keys, as it should be, whatever they are; or changed after it was signed."""
    made, names = federation(), st.sampled_from([NAME, "coordinator", ""]) | odd.words
    receiving = odd.one_of(POINTS) | st.binary(min_size=30, max_size=34)
    lattice = odd.one_of([None, b"\xff" * 1184, bytes(1184), bytes(10)])
    signed = st.tuples(names, receiving, lattice, st.sampled_from([made.authority.federation_id, "ab" * 8]))
    changed = odd.nearly(json.loads(made.request))
    return signed.map(_sign_request) | changed.map(as_json)


def _sign_request(parts: tuple[str, bytes, bytes | None, str]) -> bytes:
    name, receiving, lattice, group = parts
    signing = federation().keyring.envelope_keys().signing
    fields = {"name": name, "federation": group, "receiving": receiving.hex()}
    fields |= {"signing": signing.public_key().public_bytes_raw().hex()}
    fields |= {} if lattice is None else {"lattice": lattice.hex()}
    message = cards._REQUEST_LABEL + cards._canonical(fields)
    holder = _keys()["own"].sign(message, cards._HASH)
    return cards._canonical({**fields, "proof": signing.sign(message).hex(), "holder": holder.hex()})


@shape("card")
def build_card() -> Shape:
    """A card with a field changed, so that its signature is that of another."""
    said = odd.nearly(json.loads(federation().card))
    canonical = said.map(lambda one: json.dumps(one, sort_keys=True, separators=(",", ":")).encode())
    return canonical | said.map(as_json)


@shape("enrolment")
def build_enrolment() -> Shape:
    """The whole request, with fields that belong to another site, to nobody or to no request."""
    requests = [enrolment.EnrolRequest.FromString(one) for one in enrolments()]
    return odd.one_of(requests).flatmap(messages_nearly).map(lambda one: one.SerializeToString())


@shape("join_file")
def build_invitation() -> Shape:
    """A join file with other addresses, times, names, with a checksum that is right or is not."""
    return odd.nearly(json.loads(federation().join.read_bytes())).flatmap(
        lambda said: odd.one_of([as_json(said), as_json(_sum(said))])
    )


def _sum(said: Any) -> Any:
    from pfl_common.identity.join_file import _checksum

    if not isinstance(said, dict):
        return said
    fields = {name: value for name, value in said.items() if name != "checksum"}
    return {**fields, "checksum": _checksum(fields)}


@shape("record")
def build_record() -> Shape:
    """A field of every kind."""
    times = st.sampled_from(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2030-01-01", "24:00"])
    return st.one_of(
        times.map(lambda one: as_json({"a": one})),
        odd.anything.map(lambda one: as_json({"a": one})),
        odd.anything.map(as_json),
    )


@shape("certificate")
def build_certificate() -> Shape:
    """What a coordinator could send as a site's certificate; and keys that are of another kind."""
    keys = odd.one_of([*_keys().values()]).map(
        lambda key: key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return _PARTS.map(_make_certificate) | keys | st.tuples(keys, keys).map(b"".join)


def _make_certificate(parts: tuple[Any, Any, str, Any]) -> bytes:
    subject, extensions, key, digest = parts
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    builder = x509.CertificateBuilder(name, name, _keys()[key].public_key(), 1, NOW, NOW + timedelta(days=1))
    for oid in {extension.oid for extension, _ in extensions}:
        builder = builder.add_extension(*next(one for one in extensions if one[0].oid == oid))
    return builder.sign(_keys()[key], None if key == "Ed25519" else digest).public_bytes(Encoding.PEM)
