"""The certificates in use: real TLS handshakes between a coordinator and a site."""

from __future__ import annotations

import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.identity import Authority, KeyPair, Keyring

DAY = timedelta(days=1)


def context(side: int, pair: KeyPair, ca_pem: bytes, folder: Path) -> ssl.SSLContext:
    """One side of a connection that insists on the other's certificate."""
    made = ssl.SSLContext(side)
    made.load_verify_locations(cadata=ca_pem.decode())
    made.verify_mode = ssl.CERT_REQUIRED
    file = folder / f"{side}.pem"
    file.write_bytes(pair.key_pem + pair.certificate_pem)
    made.load_cert_chain(file)
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[str, str]:
    """Let both sides speak until they agree; give the site's name as the server sees it, and the reverse."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialling = client.wrap_bio(down, up, server_hostname=host)
    serving = server.wrap_bio(up, down, server_side=True)
    waiting = [dialling, serving]
    for _ in range(20):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return common_name(serving), common_name(dialling)
    raise AssertionError("the handshake did not end")


def common_name(end: ssl.SSLObject) -> str:
    """The name in the certificate that the other side showed."""
    certificate = end.getpeercert()
    assert certificate is not None
    return {key: value for part in certificate["subject"] for key, value in part}["commonName"]


def shown_by(keyring: Keyring) -> KeyPair:
    """What a site shows to the coordinator."""
    return KeyPair(keyring.key_pem, keyring.certificate_pem)


@pytest.fixture
def today() -> datetime:
    """The real time: these handshakes look at the machine's clock."""
    return datetime.now(UTC)


@pytest.fixture
def federation(tmp_path: Path, today: datetime) -> Authority:
    """A federation that is a hundred days old."""
    return Authority.open_or_create(tmp_path / "real", now=today - 100 * DAY)


def join(authority: Authority, keyring: Keyring, moment: datetime) -> KeyPair:
    """Make the site a member from this moment on."""
    keyring.store(authority.sign_site(keyring.csr("hospital_a"), "hospital_a", now=moment), authority.ca_pem)
    return shown_by(keyring)


def serving(authority: Authority, folder: Path, moment: datetime) -> ssl.SSLContext:
    """The coordinator's side of a connection."""
    pair = authority.server_certificate(["pfl.example.org"], now=moment)
    return context(ssl.PROTOCOL_TLS_SERVER, pair, authority.ca_pem, folder)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "pfl.example.org"])
def test_a_site_and_its_coordinator_agree(
    tmp_path: Path, federation: Authority, keyring: Keyring, today: datetime, host: str
) -> None:
    """Each side sees the other's name, under every name the coordinator is dialled by."""
    site = context(ssl.PROTOCOL_TLS_CLIENT, join(federation, keyring, today), keyring.ca_pem, tmp_path)
    assert ("hospital_a", "coordinator") == shake_hands(serving(federation, tmp_path, today), site, host)


def test_the_operator_and_the_coordinator_agree(
    tmp_path: Path, federation: Authority, today: datetime
) -> None:
    """The hand tool's own certificate opens the same door, under its own name."""
    pair = federation.operator_certificate(now=today)
    tool = context(ssl.PROTOCOL_TLS_CLIENT, pair, federation.ca_pem, tmp_path)
    assert ("operator", "coordinator") == shake_hands(serving(federation, tmp_path, today), tool, "localhost")


def test_a_site_refuses_a_foreign_coordinator(
    tmp_path: Path, federation: Authority, keyring: Keyring, today: datetime
) -> None:
    """A server at the address without the federation's certificate hears nothing."""
    foreign = Authority.open_or_create(tmp_path / "foreign", now=today)
    site = context(ssl.PROTOCOL_TLS_CLIENT, join(federation, keyring, today), keyring.ca_pem, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serving(foreign, tmp_path, today), site, "localhost")


def test_a_site_refuses_another_host(
    tmp_path: Path, federation: Authority, keyring: Keyring, today: datetime
) -> None:
    """The right federation at a name it was not given is refused too."""
    site = context(ssl.PROTOCOL_TLS_CLIENT, join(federation, keyring, today), keyring.ca_pem, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(serving(federation, tmp_path, today), site, "other.example.org")


def test_the_coordinator_refuses_a_foreign_site(
    tmp_path: Path, federation: Authority, keyring: Keyring, today: datetime
) -> None:
    """A site of another federation does not get past the handshake."""
    foreign = Authority.open_or_create(tmp_path / "foreign", now=today)
    pair = join(foreign, keyring, today)
    site = context(ssl.PROTOCOL_TLS_CLIENT, pair, federation.ca_pem, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serving(federation, tmp_path, today), site, "localhost")


def test_the_coordinator_refuses_an_expired_site(
    tmp_path: Path, federation: Authority, keyring: Keyring, today: datetime
) -> None:
    """A certificate that ended yesterday is refused as expired."""
    pair = join(federation, keyring, today - 31 * DAY)
    assert keyring.expired(today)
    site = context(ssl.PROTOCOL_TLS_CLIENT, pair, keyring.ca_pem, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(serving(federation, tmp_path, today), site, "localhost")


def test_the_coordinator_refuses_a_server_that_dials(
    tmp_path: Path, federation: Authority, today: datetime
) -> None:
    """The coordinator's own certificate is good for serving only."""
    pair = federation.server_certificate([], now=today)
    dialling = context(ssl.PROTOCOL_TLS_CLIENT, pair, federation.ca_pem, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(serving(federation, tmp_path, today), dialling, "localhost")


def test_identity_stays_light() -> None:
    """The small daemon imports this room: no torch, no numpy, no grpc, no event loop, and no authority either."""
    heavy = {"torch", "numpy", "grpc", "asyncio", "pfl_common.identity.authority"}
    code = f"import sys, pfl_common.identity; print(*sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "" == answer.stdout.strip()
