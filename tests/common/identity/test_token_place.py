"""Keys in a token (SoftHSM): the authority signs inside it, and what is sealed opens with it alone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from cryptography import x509

from pfl_common.errors import IdentityError, PflError, SettingError
from pfl_common.identity import Authority, Keyring
from pfl_common.identity.issuing import new_signer
from pfl_common.identity.key_place import choose_place
from pfl_common.identity.token_place import TokenPlace

LIBRARY = Path("/usr/lib/softhsm/libsofthsm2.so")
pytest.importorskip("pkcs11", reason="python-pkcs11 is not installed (pip install 'pfl-net[token]')")
pytestmark = pytest.mark.skipif(
    not LIBRARY.exists() or shutil.which("softhsm2-util") is None,
    reason="SoftHSM is not installed (softhsm2)",
)
NAME, PIN = "hospital_a", "123456"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A token called pfl, whose files lie in the test's own folder."""
    folder = tmp_path_factory.mktemp("token")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\nlog.level = ERROR\n")
    pin = folder / "pin"
    pin.touch(mode=0o600)
    pin.write_text(PIN + "\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        words = ("--init-token", "--free", "--label", "pfl", "--pin", PIN, "--so-pin", PIN)
        subprocess.run(["softhsm2-util", *words], check=True, capture_output=True)
        yield f"pkcs11:token=pfl?module-path={LIBRARY}&pin-source=file:{pin}"


@pytest.fixture
def place(address: str, tmp_path: Path) -> Iterator[TokenPlace]:
    """As the operator's settings name it."""
    one = choose_place(tmp_path / "federation", keys=address, passphrase="")
    assert isinstance(one, TokenPlace)
    yield one
    one.token.close()


def test_a_federation_whose_keys_are_in_a_token(place: TokenPlace, tmp_path: Path, now: datetime) -> None:
    """Its certificates and cards hold like any other's; without the token a copy of the folder opens nothing."""
    folder = tmp_path / "federation"
    authority, keyring = (
        Authority.open_or_create(folder, now=now, place=place),
        Keyring.open(tmp_path / "site"),
    )
    csr = keyring.csr(NAME)
    keyring.store(authority.sign_site(csr, NAME, now=now), authority.ca_pem)
    asked = keyring.card_request(NAME, authority.federation_id)
    keyring.store_card(authority.sign_card(asked, csr, name=NAME, now=now))
    sealing = authority.coordinator_keys(hybrid=True)
    place.token.close()
    again = Authority.open(folder, place=place)
    assert authority.ca_pem == again.ca_pem
    assert sealing.shown() == again.coordinator_keys().shown()

    stolen = Path(shutil.copytree(folder, tmp_path / "stolen"))
    assert [] == [
        path for path in stolen.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    ]
    with pytest.raises(PflError):
        Authority.open(stolen)
    with pytest.raises(TypeError):
        authority._present.key.private_bytes()


def test_a_new_authority_is_made_in_the_token_too(place: TokenPlace, tmp_path: Path, now: datetime) -> None:
    """The change of the authority is the same, and so is the federation."""
    authority = Authority.open_or_create(tmp_path / "federation", now=now, place=place)
    before = authority.federation_id
    authority.rotate(now=now)
    assert 2 == authority.ca_pem.count(b"BEGIN")
    authority.finish()
    again = Authority.open(tmp_path / "federation", place=place)
    assert (before, authority.ca_pem) == (again.federation_id, again.ca_pem)
    found = x509.load_pem_x509_certificate(again.ca_pem)
    found.verify_directly_issued_by(found)


def test_what_a_token_cannot_be(address: str, tmp_path: Path) -> None:
    """A wrong PIN, another label, an address without its parts: each is told, and no PIN is."""
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("654321\n")
    library = f"module-path={LIBRARY}"
    for said, error in (
        (f"pkcs11:token=pfl?{library}&pin-source={wrong}", IdentityError),
        (address.replace("token=pfl", "token=other"), IdentityError),
        (f"pkcs11:token=pfl?{library}", SettingError),
    ):
        with pytest.raises(error) as refused:
            choose_place(tmp_path / "federation", keys=said, passphrase="")
        assert "654321" not in str(refused.value)


def test_an_authority_from_elsewhere_is_not_put_there(
    place: TokenPlace, tmp_path: Path, now: datetime
) -> None:
    """Its key was outside: the promise that it never was is the token's whole point."""
    with pytest.raises(SettingError, match="inside the token"):
        Authority.open_or_create(tmp_path / "federation", now=now, place=place, brought=new_signer(now))
