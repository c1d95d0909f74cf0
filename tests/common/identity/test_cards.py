"""Cards: only the authority makes them, only for keys their site holds, and they say what they were made for."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pfl_common.errors import Refused
from pfl_common.identity import Authority, BadRequest, IdentityError, Keyring, cards
from pfl_common.identity.cards import Card, EnvelopeKeys, open_card, read_card

DAY = timedelta(days=1)
NAME = "hospital_a"


@pytest.fixture
def joined(authority: Authority, keyring: Keyring, now: datetime) -> Keyring:
    """A site with its certificate, still without a card."""
    keyring.store(authority.sign_site(keyring.csr(NAME), NAME, now=now), authority.ca_pem)
    return keyring


@pytest.fixture
def signed(authority: Authority, joined: Keyring, now: datetime) -> bytes:
    """The site's card as it travels."""
    request = joined.card_request(NAME, authority.federation_id)
    return authority.sign_card(request, joined.csr(NAME), name=NAME, now=now)


def change(document: bytes, **fields: str) -> bytes:
    """The same canonical JSON with other values."""
    return json.dumps({**json.loads(document), **fields}, sort_keys=True, separators=(",", ":")).encode()


def test_a_card_says_whose_keys_it_holds(
    authority: Authority, joined: Keyring, signed: bytes, now: datetime
) -> None:
    """Name, both public keys, federation, and thirty days from five minutes ago."""
    card = read_card(signed, authority.ca_pem, name=NAME, now=now)
    assert (NAME, authority.federation_id) == (card.name, card.federation)
    assert joined.envelope_keys().public() == (card.signing, card.receiving)
    whole = now.replace(microsecond=0)
    assert (whole - timedelta(minutes=5), whole + 30 * DAY) == (card.starts, card.ends)
    card.verifier.verify(joined.envelope_keys().signing.sign(b"words"), b"words")
    assert card.recipient == joined.envelope_keys().receiving.public_key()


def test_keys_and_card_are_kept(tmp_path: Path, joined: Keyring, signed: bytes) -> None:
    """A restart finds the same keys and the same card, in files only the site's user can read."""
    assert joined.card is None
    joined.store_card(signed)
    again = Keyring.open(tmp_path / "site")
    assert signed == again.card
    assert joined.envelope_keys().public() == again.envelope_keys().public()
    for name in ("site.seal", "site.card"):
        assert 0o600 == stat.S_IMODE((tmp_path / "site" / name).stat().st_mode)


def test_the_three_keys_are_three(joined: Keyring) -> None:
    """Not one key under three names."""
    keys = joined.envelope_keys()
    raw = {keys.signing.private_bytes_raw(), keys.receiving.private_bytes_raw()}
    assert 2 == len(raw)
    assert not [key for key in raw if key in joined.key_pem]


def test_the_coordinator_has_keys_and_a_card(tmp_path: Path, authority: Authority, now: datetime) -> None:
    """Always the same keys, a card for a year, and a private file."""
    card = read_card(authority.coordinator_card(now=now), authority.ca_pem, name="coordinator", now=now)
    again = Authority.open(tmp_path / "federation")
    assert again.coordinator_keys().public() == (card.signing, card.receiving)
    assert 365 == (card.ends - now.replace(microsecond=0)).days
    assert 0o600 == stat.S_IMODE((tmp_path / "federation" / "coordinator.seal").stat().st_mode)


def test_a_cards_time_is_checked(authority: Authority, signed: bytes, now: datetime) -> None:
    """Too early and too late are refused with both moments and a word about clocks."""
    for moment in (now - timedelta(minutes=6), now + 31 * DAY):
        with pytest.raises(Refused, match=rf"now is {moment:%Y-%m-%d}.*clocks") as caught:
            read_card(signed, authority.ca_pem, name=NAME, now=moment)
        assert "card" == caught.value.code
    read_card(signed, authority.ca_pem, name=NAME, now=now - timedelta(minutes=4))


def test_a_card_is_for_one_name(authority: Authority, signed: bytes, now: datetime) -> None:
    """A site's card is not the coordinator's, nor another site's."""
    for name in ("coordinator", "hospital_b"):
        with pytest.raises(Refused, match=f"a card of {NAME}; expected: the card of {name}"):
            read_card(signed, authority.ca_pem, name=name, now=now)


def test_a_card_is_of_one_federation(
    tmp_path: Path, authority: Authority, signed: bytes, now: datetime
) -> None:
    """Another federation's authority did not sign it, and signs none for this one."""
    foreign = Authority.open_or_create(tmp_path / "foreign", now=now)
    with pytest.raises(Refused, match="did not sign"):
        open_card(signed, foreign.ca_pem)
    stray = cards.issue(open_card(signed, authority.ca_pem), foreign._present.key)
    for ca_pem in (authority.ca_pem, foreign.ca_pem):
        with pytest.raises(Refused, match="did not sign"):
            open_card(stray, ca_pem)


def test_every_field_is_signed(authority: Authority, signed: bytes, now: datetime) -> None:
    """Another name, key, federation or end needs another signature."""
    other = EnvelopeKeys.generate().public()
    for field, value in (
        ("name", "hospital_b"),
        ("signing", other[0].hex()),
        ("receiving", other[1].hex()),
        ("federation", "0" * 16),
        ("starts", "2029-01-01T00:00:00+00:00"),
        ("ends", "2040-01-01T00:00:00+00:00"),
    ):
        with pytest.raises(Refused, match="did not sign"):
            open_card(change(signed, **{field: value}), authority.ca_pem)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_anywhere(authority: Authority, signed: bytes, data: st.DataObject) -> None:
    """One bit of a card's text, and it is no card."""
    bit = data.draw(st.integers(0, len(signed) * 8 - 1))
    spoilt = bytearray(signed)
    spoilt[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Refused) as caught:
        open_card(bytes(spoilt), authority.ca_pem)
    assert "card" == caught.value.code


@pytest.mark.parametrize("junk", [b"", b"junk", b"[]", b"{}", b"\xff\xfe", b"[" * 4000, b" " * 5000])
def test_junk_is_no_card(authority: Authority, junk: bytes) -> None:
    """Whatever a peer sends, the end is a refusal."""
    with pytest.raises(Refused) as caught:
        open_card(junk, authority.ca_pem)
    assert "card" == caught.value.code


def test_a_card_has_one_text(authority: Authority, signed: bytes) -> None:
    """Spaces, capitals or one more field make another text, which nobody signed."""
    for other in (
        signed + b"\n",
        signed.replace(b":", b": ", 1),
        change(signed, more="words"),
        change(signed, signing=json.loads(signed)["signing"].upper()),
        change(signed, signature=json.loads(signed)["signature"] + "00"),
    ):
        with pytest.raises(Refused):
            open_card(other, authority.ca_pem)


def test_a_card_is_small(authority: Authority, joined: Keyring, now: datetime) -> None:
    """Beyond a few kilobytes neither a card nor a request is even read."""
    with pytest.raises(Refused, match="a card of 5000 bytes"):
        open_card(b" " * 5000, authority.ca_pem)
    with pytest.raises(BadRequest, match="a request of 5000 bytes"):
        authority.sign_card(b" " * 5000, joined.csr(NAME), name=NAME, now=now)


def test_keys_have_one_length(authority: Authority, joined: Keyring, signed: bytes, now: datetime) -> None:
    """Shorter and longer ones are refused before anything is computed with them."""
    card = open_card(signed, authority.ca_pem)
    request = joined.card_request(NAME, authority.federation_id)
    for size in (31, 33):
        with pytest.raises(Refused, match="no key of 32 bytes in 'receiving'"):
            open_card(
                cards.issue(replace(card, receiving=bytes(size)), authority._present.key), authority.ca_pem
            )
        with pytest.raises(BadRequest, match="no key of 32 bytes in 'signing'"):
            authority.sign_card(change(request, signing="00" * size), joined.csr(NAME), name=NAME, now=now)


def test_a_request_is_bound_to_the_certificate_request(
    tmp_path: Path, authority: Authority, joined: Keyring, now: datetime
) -> None:
    """An attacker who exchanges the keys on the way, or brings another's request, gets no card."""
    request = joined.card_request(NAME, authority.federation_id)
    stranger = Keyring.open(tmp_path / "stranger")
    with pytest.raises(BadRequest, match="did not sign"):
        authority.sign_card(request, stranger.csr(NAME), name=NAME, now=now)
    theirs = stranger.card_request(NAME, authority.federation_id)
    with pytest.raises(BadRequest, match="did not sign"):
        authority.sign_card(theirs, joined.csr(NAME), name=NAME, now=now)
    fields = json.loads(theirs)
    for field in ("signing", "receiving"):
        with pytest.raises(BadRequest, match="did not sign"):
            authority.sign_card(
                change(request, **{field: fields[field]}), joined.csr(NAME), name=NAME, now=now
            )


def test_nobody_gets_a_card_for_a_key_he_does_not_hold(
    tmp_path: Path, authority: Authority, joined: Keyring, now: datetime
) -> None:
    """A site that names another's signing key cannot prove it, though its own key vouches for the request."""
    other = Keyring.open(tmp_path / "other").envelope_keys()
    mixed = EnvelopeKeys(other.signing, joined.envelope_keys().receiving)
    request = cards.make_request(mixed, joined._key, name=NAME, federation_id=authority.federation_id)
    forged = change(request, proof=joined.envelope_keys().signing.sign(b"anything").hex())
    with pytest.raises(BadRequest, match="did not sign"):
        authority.sign_card(forged, joined.csr(NAME), name=NAME, now=now)


def test_a_request_is_for_one_name_and_federation(
    authority: Authority, joined: Keyring, now: datetime
) -> None:
    """Asked for another name, or brought to another federation, it is refused."""
    csr = joined.csr(NAME)
    for request in (
        joined.card_request("hospital_b", authority.federation_id),
        joined.card_request(NAME, "0" * 16),
    ):
        with pytest.raises(BadRequest, match="another name or another federation"):
            authority.sign_card(request, csr, name=NAME, now=now)


@pytest.mark.parametrize("junk", [b"", b"{}", b"[" * 4000, b" " * 5000, b'{"name":"hospital_a"}'])
def test_junk_is_no_request(authority: Authority, joined: Keyring, now: datetime, junk: bytes) -> None:
    """A stranger's bytes have the same clear end."""
    with pytest.raises(BadRequest, match="card request"):
        authority.sign_card(junk, joined.csr(NAME), name=NAME, now=now)


@pytest.mark.parametrize("name", ["coordinator", "operator", "../a"])
def test_no_site_gets_a_reserved_card(
    authority: Authority, joined: Keyring, now: datetime, name: str
) -> None:
    """Nobody becomes the coordinator by asking."""
    request = cards.make_request(
        joined.envelope_keys(), joined._key, name=name, federation_id=authority.federation_id
    )
    with pytest.raises(IdentityError):
        authority.sign_card(request, joined.csr(NAME), name=name, now=now)


def test_a_site_keeps_only_its_own_card(
    tmp_path: Path, authority: Authority, joined: Keyring, signed: bytes, now: datetime
) -> None:
    """A card for other keys or another name would leave the site unable to speak."""
    card = open_card(signed, authority.ca_pem)
    others = EnvelopeKeys.generate().public()
    for wrong in (
        replace(card, name="hospital_b"),
        replace(card, signing=others[0]),
        replace(card, receiving=others[1]),
    ):
        with pytest.raises(IdentityError, match="not for this site"):
            joined.store_card(cards.issue(wrong, authority._present.key))
    with pytest.raises(Refused, match="did not sign"):
        joined.store_card(change(signed, name="hospital_b"))
    assert joined.card is None


def test_no_card_outlives_the_authority(authority: Authority, joined: Keyring, signed: bytes) -> None:
    """Near the end of the federation's life cards get shorter."""
    end = x509.load_pem_x509_certificate(authority.ca_pem).not_valid_after_utc
    late = authority.coordinator_card(now=end - DAY)
    assert end == open_card(late, authority.ca_pem).ends


def test_damaged_keys_are_not_replaced(tmp_path: Path, joined: Keyring) -> None:
    """A torn file is an error that names it: with new keys the site would be nobody its peers know."""
    joined.envelope_keys()
    path = tmp_path / "site" / "site.seal"
    whole = path.read_bytes()
    first = whole[: len(whole) // 2]
    for damaged in (b"", whole[:50], first, first * 2, joined.key_pem * 2, whole + first):
        path.write_bytes(damaged)
        with pytest.raises(IdentityError, match=r"site\.seal holds no readable pair"):
            Keyring.open(tmp_path / "site").envelope_keys()
        assert damaged == path.read_bytes()


def test_keys_are_not_shown(joined: Keyring, signed: bytes) -> None:
    """No private key in a representation, a request or a card."""
    keys = joined.envelope_keys()
    request = joined.card_request(NAME, "0" * 16)
    for secret in (keys.signing.private_bytes_raw(), keys.receiving.private_bytes_raw()):
        for shown in (repr(keys).encode(), request, signed):
            assert secret not in shown
            assert secret.hex().encode() not in shown


def test_old_cards_are_still_read() -> None:
    """Bytes frozen for good: a change here means that releases cannot read each other's cards."""
    ca_pem, card = FROZEN_CA.encode(), FROZEN_CARD.encode()
    found = open_card(card, ca_pem)
    expected = Card(
        NAME,
        bytes.fromhex("ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c"),
        bytes.fromhex("57db4b359f23ae5e146e4e2512056704722506348c150c14753d0c933d04d421"),
        "12595018c325fef8",
        datetime.fromisoformat("2030-05-17T11:55:00+00:00"),
        datetime.fromisoformat("2030-06-16T12:00:00+00:00"),
    )
    assert expected == found


FROZEN_CA = """\
-----BEGIN CERTIFICATE-----
MIIBrDCCAVKgAwIBAgIUHbS5LyJA3LrHErsTZbgw+VpYuRgwCgYIKoZIzj0EAwIw
IjEgMB4GA1UEAwwXcGZsIGZlZGVyYXRpb24gYWE3NGJlZDIwHhcNMzAwNTE3MTE1
NTAwWhcNNDAwNTE3MTE1NTAwWjAiMSAwHgYDVQQDDBdwZmwgZmVkZXJhdGlvbiBh
YTc0YmVkMjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJYZQFl3h6otu02uJEuS
hSJZvHvmUM7ZA4OvqEp84fuT17xZwup5d7nnosws60rDxKOviRVgNainPnO+h/7j
FPOjZjBkMBIGA1UdEwEB/wQIMAYBAf8CAQAwDgYDVR0PAQH/BAQDAgEGMB0GA1Ud
DgQWBBR2iim8ICatxiCFnhp/mVCy2jPo8DAfBgNVHSMEGDAWgBR2iim8ICatxiCF
nhp/mVCy2jPo8DAKBggqhkjOPQQDAgNIADBFAiAUmYTWM8ZFwSMH95O54TltRzmP
GyjVuQNpODTCMWeyigIhAMW5ZTv6agLeue+tGLBQ98na9XnrA5DcSTtb+CDGmsQq
-----END CERTIFICATE-----
"""
FROZEN_CARD = (
    '{"ends":"2030-06-16T12:00:00+00:00","federation":"12595018c325fef8","name":"hospital_a","r'
    'eceiving":"57db4b359f23ae5e146e4e2512056704722506348c150c14753d0c933d04d421","signature":"'
    "3045022100edcc4eac5288a40c86f884a8a66e6f89d9cd0810171f13326934b97e2380269d02203a8d4b7f21f3"
    '70c287b55130b7aafced00c978c3a0f5b44b36dc0088c600084e","signing":"ea4a6c63e29c520abef5507b1'
    '32ec5f9954776aebebe7b92421eea691446d22c","starts":"2030-05-17T11:55:00+00:00"}'
)


def test_the_coordinator_knows_a_site_by_its_newest_card(
    authority: Authority, joined: Keyring, now: datetime
) -> None:
    """It keeps what it signs: a renewed card takes the place of the old one, and its time counts at each look."""
    with pytest.raises(Refused, match="no card of"):
        authority.card_of(NAME, now=now)
    request = joined.card_request(NAME, authority.federation_id)
    authority.sign_card(request, joined.csr(NAME), name=NAME, now=now)
    first = authority.card_of(NAME, now=now)
    assert first == authority.card_of(NAME, now=now)
    with pytest.raises(Refused, match="valid from"):
        authority.card_of(NAME, now=now + timedelta(days=31))
    authority.sign_card(request, joined.csr(NAME), name=NAME, now=now + timedelta(days=20))
    renewed = authority.card_of(NAME, now=now + timedelta(days=31))
    assert (first.signing, True) == (renewed.signing, renewed.ends > first.ends)
