"""Cards in force, cards of the past, and who is heard no more."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.errors import IdentityError, Refused
from pfl_common.identity import Authority, Keyring, KeysRevoked, Refusal, SiteRemoved

NAME = "hospital_a"


def enrol(authority: Authority, keyring: Keyring, now: datetime, name: str = NAME) -> bytes:
    """A card for these keys, as the enrolment port and a renewal ask for one."""
    asked = keyring.card_request(name, authority.federation_id)
    return authority.sign_card(asked, keyring.csr(name), name=name, now=now)


def code(call: object) -> str:
    with pytest.raises(Refused) as refused:
        call()
    return refused.value.code


def test_a_removed_site_has_no_card_and_gets_none(
    authority: Authority, keyring: Keyring, now: datetime
) -> None:
    """A renewal that was verified before is too late; only a new invitation lifts it."""
    enrol(authority, keyring, now)
    authority.cards.remove(NAME)
    assert "not_in_the_run" == code(lambda: authority.card_of(NAME, now=now))
    with pytest.raises(SiteRemoved):
        enrol(authority, keyring, now)
    authority.cards.readmit(NAME)
    assert "card" == code(lambda: authority.card_of(NAME, now=now))
    enrol(authority, keyring, now)
    assert NAME == authority.card_of(NAME, now=now).name


def test_revoked_keys_never_come_back(
    authority: Authority, keyring: Keyring, now: datetime, tmp_path: Path
) -> None:
    """Neither the signing key nor the key of its certificate, in whatever pair, invited again or not; others do."""
    enrol(authority, keyring, now)
    authority.cards.revoke(NAME, holder=keyring.fingerprint)
    authority.cards.readmit(NAME)
    assert "revoked" == code(lambda: authority.card_of(NAME, now=now))
    with pytest.raises(KeysRevoked):
        enrol(authority, keyring, now)
    other = Keyring.open(tmp_path / "other")
    stolen = tmp_path / "site"
    for file, kept in (("site.key", other), ("site.seal", other)):
        mixed = Keyring.open(tmp_path / f"mixed-{file}")
        mixed.envelope_keys()
        (tmp_path / f"mixed-{file}" / file).write_bytes((stolen / file).read_bytes())
        with pytest.raises(KeysRevoked):
            enrol(authority, Keyring.open(tmp_path / f"mixed-{file}"), now)
        assert kept is other
    enrol(authority, other, now)
    assert other.envelope_keys().public()[:2] == authority.card_of(NAME, now=now).keys[:2]


def test_it_outlives_a_restart(authority: Authority, keyring: Keyring, now: datetime, tmp_path: Path) -> None:
    """What was decided lies on the disk; a torn file lets nobody in."""
    enrol(authority, keyring, now)
    authority.cards.remove(NAME)
    again = Authority.open(tmp_path / "federation")
    assert "not_in_the_run" == code(lambda: again.card_of(NAME, now=now))
    (tmp_path / "federation" / "cards" / "barred" / f"{NAME}.json").write_bytes(b"{")
    with pytest.raises(IdentityError, match="damaged"):
        enrol(again, keyring, now)


def test_what_was_signed_before_is_still_known(
    authority: Authority, keyring: Keyring, now: datetime, tmp_path: Path
) -> None:
    """Newer keys, a removal and the end of a card's time change nothing about who signed a kept update."""
    enrol(authority, keyring, now)
    other = Keyring.open(tmp_path / "other")
    enrol(authority, other, now)
    enrol(authority, other, now)
    expected = [keys.envelope_keys().public()[0] for keys in (other, keyring)]
    assert expected == [card.signing for card in authority.cards.signers(NAME)]
    authority.cards.remove(NAME)
    later = Authority.open(tmp_path / "federation")
    assert set(expected) == {card.signing for card in later.cards.signers(NAME)}
    assert () == authority.cards.signers("hospital_b")


def test_a_card_of_another_authority_in_its_place(
    authority: Authority, keyring: Keyring, now: datetime, tmp_path: Path
) -> None:
    """Who can write into the folder can put no card there: it has to be signed."""
    enrol(authority, keyring, now)
    foreign = Authority.open_or_create(tmp_path / "foreign", now=now)
    asked = keyring.card_request(NAME, foreign.federation_id)
    forged = foreign.sign_card(asked, keyring.csr(NAME), name=NAME, now=now)
    (tmp_path / "federation" / "cards" / f"{NAME}.card").write_bytes(forged)
    assert "card" == code(lambda: authority.card_of(NAME, now=now))
    (tmp_path / "federation" / "cards" / f"{NAME}.card").write_bytes(
        enrol(authority, Keyring.open(tmp_path / "b"), now, "hospital_b")
    )
    assert "card" == code(lambda: authority.card_of(NAME, now=now))


def test_its_time_is_looked_at(authority: Authority, keyring: Keyring, now: datetime) -> None:
    """A card in force ends; a refusal for that is none of the operator's decisions."""
    enrol(authority, keyring, now)
    with pytest.raises(Refused) as refused:
        authority.card_of(NAME, now=now + timedelta(days=31))
    assert not isinstance(refused.value, Refusal)
