"""A site gets its certificate once, if it was invited or is the same user, and never by sending a secret."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.onboarding.enrolment import enrol_invited, enrol_same_user
from pfl_common.errors import UserError
from pfl_common.identity import Addresses, Invitation, Keyring, new_secret
from tests.network.federation import HASTY, Federation


def invite(federation: Federation, name: str = "hospital_a") -> Invitation:
    """An invitation to this federation."""
    return federation.ledger.invite(name, federation.now, addresses=federation.addresses)


async def test_an_invited_site_comes_in(federation: Federation, tmp_path: Path) -> None:
    """The certificate from the enrolment port opens the other port, under the invited name."""
    keyring = Keyring.open(tmp_path / "keys")
    await enrol_invited(keyring, invite(federation), patience=HASTY)
    async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
        await link.leave()
    assert [("leave", "hospital_a")] == federation.desk.said


async def test_an_invitation_lets_in_one_key(federation: Federation, tmp_path: Path) -> None:
    """The same site may repeat its request, another key with the same invitation is told that it is used."""
    invitation, first = invite(federation), Keyring.open(tmp_path / "first")
    await enrol_invited(first, invitation, patience=HASTY)
    await enrol_invited(first, invitation, patience=HASTY)
    with pytest.raises(NotAdmitted, match="has been used already"):
        await enrol_invited(Keyring.open(tmp_path / "second"), invitation, patience=HASTY)
    assert {"already_used": 1} == federation.office.meter.refusals


async def test_a_wrong_secret_and_a_stranger_hear_the_same(federation: Federation, tmp_path: Path) -> None:
    """Who holds no secret cannot find out by the answers which sites are invited."""
    wrong = replace(invite(federation), secret=new_secret())
    stranger = replace(wrong, site="hospital_x")
    words = []
    for number, invitation in enumerate((wrong, stranger)):
        with pytest.raises(NotAdmitted) as error:
            await enrol_invited(Keyring.open(tmp_path / str(number)), invitation, patience=HASTY)
        words.append(str(error.value))
    assert words[0] == words[1]
    assert "expected an unused invitation" in words[0]
    assert {"wrong_proof": 1, "unknown_site": 1} == federation.office.meter.refusals


async def test_an_invitation_that_is_too_old_is_named(federation: Federation, tmp_path: Path) -> None:
    """A site that comes after the last day is told so."""
    past = federation.now - timedelta(days=30)
    old = federation.ledger.invite("hospital_a", past, addresses=federation.addresses)
    with pytest.raises(NotAdmitted, match="expired on"):
        await enrol_invited(Keyring.open(tmp_path / "keys"), old, patience=HASTY)


async def test_the_same_user_comes_in_without_an_invitation(federation: Federation, tmp_path: Path) -> None:
    """Who can read the discovery file gets a certificate; a second folder of that name does not."""
    keyring = Keyring.open(tmp_path / "keys")
    await enrol_same_user(keyring, federation.found, "hospital_a", patience=HASTY)
    assert "hospital_a" == keyring.name
    with pytest.raises(NotAdmitted, match="a second site called hospital_a"):
        await enrol_same_user(
            Keyring.open(tmp_path / "second"), federation.found, "hospital_a", patience=HASTY
        )
    wrong = replace(federation.found, secret=new_secret())
    with pytest.raises(NotAdmitted, match="did not accept"):
        await enrol_same_user(Keyring.open(tmp_path / "third"), wrong, "hospital_b", patience=HASTY)


async def test_a_site_does_not_talk_to_a_foreign_coordinator(federation: Federation, tmp_path: Path) -> None:
    """A port whose certificate is not of the invitation's authority gets no request."""
    other = tmp_path / "other"
    other.mkdir()
    invitation = replace(invite(federation), ca_pem=Federation(other).authority.ca_pem)
    with pytest.raises(UserError, match="not of our federation"):
        await enrol_invited(Keyring.open(tmp_path / "keys"), invitation, patience=HASTY)
    assert not Keyring.open(tmp_path / "keys").enrolled


async def test_wrong_ports_are_named(federation: Federation, tmp_path: Path) -> None:
    """Nobody there is unreachable; the wrong one of the two ports does not let the site in."""
    invitation, keyring = invite(federation), Keyring.open(tmp_path / "keys")
    control = replace(invitation, addresses=Addresses("", enrolment=federation.addresses.control))
    with pytest.raises(Unreachable):
        await enrol_invited(keyring, control, patience=HASTY)
    async with GrpcLink(
        federation.addresses.enrolment, federation.keyring("hospital_a"), patience=HASTY
    ) as link:
        with pytest.raises(UserError, match="does not know this call"):
            await link.leave()
    await federation.office.stop(0)
    with pytest.raises(Unreachable):
        await enrol_invited(keyring, invitation, patience=HASTY)
