"""The site's keys: made once, kept private, and honest about when its certificate ends."""

from __future__ import annotations

import stat
from datetime import datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from cryptography import x509

from pfl_common.files import private
from pfl_common.identity import Authority, IdentityError, Keyring
from tests.common.support.parses import counted

DAY = timedelta(days=1)


@pytest.fixture
def joined(authority: Authority, keyring: Keyring, now: datetime) -> Keyring:
    """A site that has joined for 30 days."""
    keyring.store(authority.sign_site(keyring.csr("hospital_a"), "hospital_a", now=now), authority.ca_pem)
    return keyring


def test_everything_a_site_keeps_is_private(tmp_path: Path, joined: Keyring) -> None:
    """The folder is 0700 and every file in it 0600."""
    assert 0o700 == stat.S_IMODE((tmp_path / "site").stat().st_mode)
    kept = sorted((tmp_path / "site").iterdir())
    assert [".lock", "site.csr", "site.key", "site.pem"] == [path.name for path in kept]
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in kept}


def test_the_next_start_finds_the_same_keys(
    tmp_path: Path, joined: Keyring, authority: Authority, now: datetime
) -> None:
    """A restart changes neither key nor certificate nor request."""
    again = Keyring.open(tmp_path / "site")
    assert joined.key_pem == again.key_pem
    assert joined.certificate_pem == again.certificate_pem
    assert joined.csr("hospital_a") == again.csr("hospital_a")
    assert (True, "hospital_a", authority.federation_id) == (again.enrolled, again.name, again.federation_id)
    assert authority.ca_pem == again.ca_pem


def test_a_new_name_or_a_damaged_request_gives_a_new_request(tmp_path: Path, keyring: Keyring) -> None:
    """The kept request is used only if it is whole and for this name."""
    first = keyring.csr("hospital_a")
    second = keyring.csr("hospital_b")
    (tmp_path / "site" / "site.csr").write_bytes(second[:60])
    third = keyring.csr("hospital_b")
    assert 3 == len({first, second, third})
    assert x509.load_pem_x509_csr(second).subject == x509.load_pem_x509_csr(third).subject


def test_the_request_does_not_hold_the_key(keyring: Keyring) -> None:
    """What the site sends has no private key in it."""
    assert b"PRIVATE" in keyring.key_pem
    assert b"PRIVATE" not in keyring.csr("hospital_a")


def test_it_knows_the_invitations_it_has_tried(tmp_path: Path, keyring: Keyring) -> None:
    """Also at the next start; noted twice is noted once."""
    for known in ("one", "two", "two"):
        assert not keyring.has_tried("three")
        keyring.note_tried(known)
    again = Keyring.open(tmp_path / "site")
    assert [True, True, False] == [again.has_tried(known) for known in ("one", "two", "three")]
    assert "one\ntwo\n" == (tmp_path / "site" / "site.tried").read_text()


def days_left(keyring: Keyring, now: datetime) -> float:
    """Until its certificate ends."""
    return (x509.load_pem_x509_certificate(keyring.certificate_pem).not_valid_after_utc - now) / DAY


def test_a_certificate_lasts_thirty_days(joined: Keyring, now: datetime) -> None:
    """Thirty at first, below zero in the end."""
    assert 30 == pytest.approx(days_left(joined, now), abs=0.001)
    assert -1 == pytest.approx(days_left(joined, now + 31 * DAY), abs=0.001)


@pytest.mark.parametrize(
    ("days", "renew", "expired"), [(0, False, False), (19, False, False), (21, True, False), (31, True, True)]
)
def test_renewal_begins_in_the_last_third(
    joined: Keyring, now: datetime, days: int, renew: bool, expired: bool
) -> None:
    """A site has ten days to renew before it is locked out."""
    moment = now + days * DAY
    assert (renew, expired) == (joined.needs_renewal(moment), joined.expired(moment))


def test_renewal_keeps_the_key(joined: Keyring, authority: Authority, now: datetime) -> None:
    """A new certificate for the old key replaces the old one."""
    later = now + 25 * DAY
    joined.store(authority.sign_site(joined.csr("hospital_a"), "hospital_a", now=later), authority.ca_pem)
    assert 30 == pytest.approx(days_left(joined, later), abs=0.001)


def test_an_expired_certificate_says_what_to_do(joined: Keyring, now: datetime) -> None:
    """What was seen, what was expected, and the operator's exact command."""
    joined.check(now + 29 * DAY)
    with pytest.raises(IdentityError) as caught:
        joined.check(now + 31 * DAY)
    assert "the certificate of hospital_a expired on 2030-06-16 12:00 UTC" == caught.value.seen
    assert "one that is valid now, 2030-06-17 12:00 UTC" == caught.value.expected
    assert "ask the operator for a new invitation: pfl invite hospital_a --again" == caught.value.advice


def test_a_certificate_of_the_future_points_at_the_clock(joined: Keyring, now: datetime) -> None:
    """A clock that is behind is named as such; five minutes of difference are allowed."""
    joined.check(now - timedelta(minutes=4))
    with pytest.raises(IdentityError, match="clock"):
        joined.check(now - timedelta(minutes=6))


def test_a_site_that_has_not_joined_says_so(keyring: Keyring, now: datetime) -> None:
    """Asking for a certificate that is not there names `--join`."""
    assert not keyring.enrolled
    with pytest.raises(IdentityError, match="--join"):
        keyring.expired(now)


def test_another_sites_certificate_is_not_stored(
    tmp_path: Path, keyring: Keyring, authority: Authority, now: datetime
) -> None:
    """A certificate for another key would leave the site unable to speak."""
    other = Keyring.open(tmp_path / "other")
    with pytest.raises(IdentityError, match="another key"):
        keyring.store(authority.sign_site(other.csr("a"), "a", now=now), authority.ca_pem)
    assert not keyring.enrolled


def test_a_certificate_of_another_authority_is_not_stored(
    tmp_path: Path, keyring: Keyring, authority: Authority, now: datetime
) -> None:
    """The server that answers must hold the federation's own key."""
    foreign = Authority.open_or_create(tmp_path / "foreign", now=now)
    with pytest.raises(IdentityError, match="did not sign"):
        keyring.store(foreign.sign_site(keyring.csr("a"), "a", now=now), authority.ca_pem)


def test_a_certificate_for_serving_is_not_stored(
    tmp_path: Path, keyring: Keyring, authority: Authority, now: datetime
) -> None:
    """A certificate the coordinator would refuse from a client is refused here already."""
    pair = authority.server_certificate([], now=now)
    (tmp_path / "site" / "site.key").write_bytes(pair.key_pem)
    with pytest.raises(IdentityError, match="did not sign for a site"):
        Keyring.open(tmp_path / "site").store(pair.certificate_pem, authority.ca_pem)


def test_one_state_folder_belongs_to_one_federation(
    tmp_path: Path, joined: Keyring, authority: Authority, now: datetime
) -> None:
    """Joining another federation on top of this one is refused, and the old certificate stays."""
    foreign = Authority.open_or_create(tmp_path / "foreign", now=now)
    with pytest.raises(IdentityError, match="--state"):
        joined.store(foreign.sign_site(joined.csr("a"), "a", now=now), foreign.ca_pem)
    assert authority.federation_id == joined.federation_id


def test_a_readable_key_is_refused(tmp_path: Path, keyring: Keyring) -> None:
    """A key others could have read is refused with the command that mends it."""
    (tmp_path / "site" / "site.key").chmod(0o640)
    with pytest.raises(IdentityError, match="chmod 600"):
        Keyring.open(tmp_path / "site")


def test_certificates_are_parsed_once_and_again_when_renewed(
    tmp_path: Path, joined: Keyring, authority: Authority, now: datetime
) -> None:
    """What is asked for with each task or call costs one look at the file; a renewal is seen at once."""
    later, keyring = now + 25 * DAY, Keyring.open(tmp_path / "site")
    renewed = authority.sign_site(keyring.csr("hospital_a"), "hospital_a", now=later)

    def ask() -> tuple[object, ...]:
        keyring.check(later)
        told = keyring.name, keyring.federation_id, keyring.ca_pem, keyring.certificate_pem
        return (*told, keyring.ends, keyring.expired(later), keyring.needs_renewal(later))

    with counted() as parses:
        before = [ask() for _ in range(3)]
        assert 1 == parses.count
        keyring.store(renewed, authority.ca_pem)
        assert 3 == parses.count, "the answer's two"
        after = [ask() for _ in range(3)]
        assert 3 == parses.count
    assert (before[0][:3], True) == (after[0][:3], before[0][-1])
    assert (renewed, (later + 30 * DAY).replace(microsecond=0), False, False) == after[0][3:]
    assert after[0] == after[2]
    assert renewed == Keyring.open(tmp_path / "site").certificate_pem


def test_what_is_not_stored_is_not_held(joined: Keyring, authority: Authority, now: datetime) -> None:
    """A certificate that is refused changes nothing of what the keyring says."""
    before, other = joined.certificate_pem, joined.csr("hospital_b")
    with mock.patch.object(private, "write", side_effect=OSError), pytest.raises(OSError):
        joined.store(authority.sign_site(other, "hospital_b", now=now), authority.ca_pem)
    assert ("hospital_a", before) == (joined.name, joined.certificate_pem)
