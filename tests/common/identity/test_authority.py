"""The federation's authority: what it signs, what it refuses, and what a strict verifier says about it."""

from __future__ import annotations

import ipaddress
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import DNSName, IPAddress, PolicyBuilder, Store, VerificationError

from pfl_common.identity import Authority, BadRequest, IdentityError, Keyring, Peer, peer_of

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def mode(path: Path) -> int:
    """The permission bits of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def policy(authority: Authority, moment: datetime) -> PolicyBuilder:
    """A strict verifier that trusts this authority and looks at this moment."""
    return PolicyBuilder().store(Store([x509.load_pem_x509_certificate(authority.ca_pem)])).time(moment)


def test_key_and_folder_are_private(tmp_path: Path, authority: Authority, now: datetime) -> None:
    """The folder is 0700 and every file in it 0600."""
    authority.operator_certificate(now=now)
    assert 0o700 == mode(tmp_path / "federation")
    assert {0o600} == {mode(path) for path in (tmp_path / "federation").iterdir()}


def test_the_second_start_finds_the_same_authority(
    tmp_path: Path, authority: Authority, now: datetime
) -> None:
    """A federation outlives its coordinator's process."""
    again = Authority.open_or_create(tmp_path / "federation", now=now + 100 * DAY)
    assert authority.ca_pem == again.ca_pem
    assert authority.federation_id == again.federation_id


def test_many_at_once_make_one_authority(tmp_path: Path, now: datetime) -> None:
    """Programs that start together agree on one authority."""
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: Authority.open_or_create(tmp_path / "ca", now=now).ca_pem, range(8))
        assert 1 == len(set(made))


def test_the_authority_describes_itself(authority: Authority, now: datetime) -> None:
    """Ten years, a subject with eight digits, and an id made from the fingerprint."""
    certificate = x509.load_pem_x509_certificate(authority.ca_pem)
    assert certificate.subject.rfc4514_string().startswith("CN=pfl federation ")
    assert len("CN=pfl federation ") + 8 == len(certificate.subject.rfc4514_string())
    assert 3650 <= (certificate.not_valid_after_utc - now).days <= 3653
    limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (True, 0) == (limits.ca, limits.path_length)  # no authority beneath it
    assert authority.federation_id == certificate.fingerprint(hashes.SHA256()).hex()[:16]


def test_a_readable_key_is_refused(tmp_path: Path, authority: Authority) -> None:
    """A key others could have read is no key any more, and the error says which mode was seen."""
    (tmp_path / "federation" / "authority.pem").chmod(0o644)
    with pytest.raises(IdentityError, match="mode 0644"):
        Authority.open(tmp_path / "federation")


def test_a_linked_key_is_refused(tmp_path: Path, authority: Authority) -> None:
    """A link in the key's place could point anywhere."""
    path = tmp_path / "federation" / "authority.pem"
    path.rename(tmp_path / "elsewhere.pem")
    path.symlink_to(tmp_path / "elsewhere.pem")
    with pytest.raises(IdentityError, match="is a link"):
        Authority.open(tmp_path / "federation")


def test_a_damaged_authority_is_never_replaced(tmp_path: Path, authority: Authority, now: datetime) -> None:
    """A torn file is an error; a new authority in its place would lock every site out."""
    path = tmp_path / "federation" / "authority.pem"
    torn = path.read_bytes()[:100]
    path.write_bytes(torn)
    with pytest.raises(IdentityError, match="no readable P-256 key"):
        Authority.open_or_create(tmp_path / "federation", now=now)
    assert torn == path.read_bytes()


def test_opening_where_no_authority_is(tmp_path: Path) -> None:
    """Without a federation `open` names what to do and makes nothing."""
    with pytest.raises(IdentityError) as caught:
        Authority.open(tmp_path / "nothing")
    assert "pfl-server" in caught.value.advice
    assert not (tmp_path / "nothing").exists()


def test_a_strict_verifier_accepts_a_site(authority: Authority, keyring: Keyring, now: datetime) -> None:
    """The chain from a site's certificate to the authority holds from 5 minutes ago for 30 days."""
    pem = authority.sign_site(keyring.csr("hospital_a"), "hospital_a", now=now)
    leaf = x509.load_pem_x509_certificate(pem)
    for moment in (now - timedelta(minutes=5), now, now + 30 * DAY - HOUR):
        chain = policy(authority, moment).build_client_verifier().verify(leaf, []).chain
        assert leaf == chain[0]
    assert Peer("hospital_a", "site") == peer_of(pem)


@pytest.mark.parametrize("offset", [-timedelta(minutes=6), 30 * DAY + HOUR])
def test_a_strict_verifier_refuses_the_wrong_time(
    authority: Authority, keyring: Keyring, now: datetime, offset: timedelta
) -> None:
    """Too early and too late are both refused."""
    leaf = x509.load_pem_x509_certificate(authority.sign_site(keyring.csr("a"), "a", now=now))
    with pytest.raises(VerificationError):
        policy(authority, now + offset).build_client_verifier().verify(leaf, [])


def test_a_strict_verifier_refuses_another_federation(
    tmp_path: Path, authority: Authority, keyring: Keyring, now: datetime
) -> None:
    """A site of one federation is nobody in another."""
    foreign = Authority.open_or_create(tmp_path / "foreign", now=now)
    leaf = x509.load_pem_x509_certificate(foreign.sign_site(keyring.csr("a"), "a", now=now))
    with pytest.raises(VerificationError):
        policy(authority, now).build_client_verifier().verify(leaf, [])


def test_a_strict_verifier_refuses_roles_the_wrong_way_round(
    authority: Authority, keyring: Keyring, now: datetime
) -> None:
    """A site cannot serve as the coordinator, nor the coordinator's certificate dial in as a client."""
    site = x509.load_pem_x509_certificate(authority.sign_site(keyring.csr("a"), "a", now=now))
    server = x509.load_pem_x509_certificate(authority.server_certificate([], now=now).certificate_pem)
    with pytest.raises(VerificationError):
        policy(authority, now).build_server_verifier(DNSName("localhost")).verify(site, [])
    with pytest.raises(VerificationError):
        policy(authority, now).build_client_verifier().verify(server, [])


def test_the_server_certificate_names_its_hosts(authority: Authority, now: datetime) -> None:
    """DNS names and IP addresses as given, and this machine's own always."""
    _, pem = authority.server_certificate(
        ["pfl.example.org", "192.0.2.7", "[2001:db8::1]", "localhost"], now=now
    )
    leaf = x509.load_pem_x509_certificate(pem)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert ["pfl.example.org", "localhost"] == names.get_values_for_type(x509.DNSName)
    assert {"192.0.2.7", "2001:db8::1", "127.0.0.1", "::1"} == addresses
    for subject in (DNSName("pfl.example.org"), IPAddress(ipaddress.ip_address("192.0.2.7"))):
        policy(authority, now).build_server_verifier(subject).verify(leaf, [])
    with pytest.raises(VerificationError):
        policy(authority, now).build_server_verifier(DNSName("other.example.org")).verify(leaf, [])


@pytest.mark.parametrize(
    "host", ["", "https://pfl.example.org", "pfl.example.org:7301", "a..b", "krankenhäuser.example"]
)
def test_a_host_that_is_none_is_refused(authority: Authority, now: datetime, host: str) -> None:
    """An address with scheme or port, or an empty one, is not a host."""
    with pytest.raises(IdentityError, match="host name"):
        authority.server_certificate([host], now=now)


def test_the_requests_own_subject_is_ignored(authority: Authority, now: datetime) -> None:
    """Who asks to be the operator, in subject and extensions, becomes the named site and no more."""
    key = ec.generate_private_key(ec.SECP256R1())
    wanted = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "operator"),
            x509.NameAttribute(NameOID.COMMON_NAME, "operator"),
        ]
    )
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(wanted)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = authority.sign_site(request.public_bytes(Encoding.PEM), "hospital_a", now=now)
    extensions = x509.load_pem_x509_certificate(pem).extensions
    assert Peer("hospital_a", "site") == peer_of(pem)
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [ExtendedKeyUsageOID.CLIENT_AUTH] == list(usage)


@pytest.mark.parametrize("name", ["operator", "coordinator", "../a"])
def test_no_site_gets_a_reserved_name(
    authority: Authority, keyring: Keyring, now: datetime, name: str
) -> None:
    """Not even the coordinator itself can make a site of such a name."""
    with pytest.raises(IdentityError):
        authority.sign_site(keyring.csr("a"), name, now=now)


def _request(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> x509.CertificateSigningRequest:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
    return x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())


@pytest.mark.parametrize("kind", ["rsa", "p384"])
def test_only_p256_keys_are_signed(authority: Authority, now: datetime, kind: str) -> None:
    """Another kind of key is refused by name."""
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(BadRequest, match="not P-256"):
        authority.sign_site(_request(key).public_bytes(Encoding.PEM), "a", now=now)


def test_a_request_signed_by_another_key_is_refused(authority: Authority, now: datetime) -> None:
    """Nobody gets a certificate for a key he does not hold."""
    der = bytearray(_request(ec.generate_private_key(ec.SECP256R1())).public_bytes(Encoding.DER))
    der[-1] ^= 1  # the last byte belongs to the signature
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    with pytest.raises(BadRequest, match="signature is wrong"):
        authority.sign_site(forged, "a", now=now)


@pytest.mark.parametrize("junk", [b"", b"junk", b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", b"x" * 9000])
def test_an_unreadable_request_is_refused(authority: Authority, now: datetime, junk: bytes) -> None:
    """Anything else than a request has the same clear end."""
    with pytest.raises(BadRequest):
        authority.sign_site(junk, "a", now=now)


def test_an_oversized_request_is_refused(authority: Authority, keyring: Keyring, now: datetime) -> None:
    """A stranger's request is not even parsed beyond a few kilobytes."""
    with pytest.raises(BadRequest, match="of 9000 bytes"):
        authority.sign_site(keyring.csr("a") + b"\n" * (9000 - len(keyring.csr("a"))), "a", now=now)


def test_the_operator_keeps_a_certificate_until_near_its_end(authority: Authority, now: datetime) -> None:
    """The same pair while it is good, a new one when less than a third of its life is left."""
    first = authority.operator_certificate(now=now)
    assert Peer("operator", "operator") == peer_of(first.certificate_pem)
    assert first == authority.operator_certificate(now=now + 19 * DAY)
    renewed = authority.operator_certificate(now=now + 21 * DAY)
    assert first != renewed
    leaf = x509.load_pem_x509_certificate(renewed.certificate_pem)
    policy(authority, now + 45 * DAY).build_client_verifier().verify(leaf, [])


def test_no_certificate_outlives_the_authority(authority: Authority, keyring: Keyring, now: datetime) -> None:
    """Near the end of the federation's life certificates get shorter, and then there are none."""
    end = x509.load_pem_x509_certificate(authority.ca_pem).not_valid_after_utc
    csr = keyring.csr("a")
    leaf = x509.load_pem_x509_certificate(authority.sign_site(csr, "a", now=end - DAY))
    assert end == leaf.not_valid_after_utc
    with pytest.raises(IdentityError, match="own CA certificate expired"):
        authority.sign_site(csr, "a", now=end + DAY)


def test_a_representation_shows_no_key(authority: Authority, now: datetime) -> None:
    """A pair that ends in a log by mistake does not take its private key along."""
    assert "PRIVATE KEY" not in repr(authority.operator_certificate(now=now))


def test_a_moment_without_time_zone_is_an_error(authority: Authority, now: datetime) -> None:
    """A local time taken for universal time would shift every expiry by hours."""
    with pytest.raises(ValueError, match="time zone"):
        authority.server_certificate([], now=now.replace(tzinfo=None))
