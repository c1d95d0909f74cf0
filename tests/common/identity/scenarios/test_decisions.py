"""Invitations that the operator decides about: sites that were removed, and keys that wait to be approved."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.errors import IdentityError
from pfl_common.identity import (
    Addresses,
    ApprovalAwaited,
    ApprovalDenied,
    Authority,
    Invitation,
    InvitationExpired,
    InvitationUsed,
    Keyring,
    Ledger,
    SiteRemoved,
    new_secret,
    tell_fingerprint,
)
from pfl_common.identity.proofs import prove

NAME, DAY = "hospital_a", timedelta(days=1)


def come(
    ledger: Ledger, invitation: Invitation, keyring: Keyring, now: datetime, *, approve: bool = False
) -> None:
    """A site comes with an invitation."""
    csr = keyring.csr(NAME)
    ledger.redeem(NAME, csr, proof=invitation.prove(csr), now=now, approve=approve)


@pytest.mark.parametrize("used", [True, False])
def test_a_removed_site_needs_a_new_invitation(
    ledger: Ledger,
    invitation: Invitation,
    keyring: Keyring,
    now: datetime,
    addresses: Addresses,
    *,
    used: bool,
) -> None:
    """Neither one that was used nor one that was not lets it in; the next needs no --again."""
    if used:
        come(ledger, invitation, keyring, now)
    ledger.close(NAME)
    with pytest.raises(SiteRemoved):
        come(ledger, invitation, keyring, now)
    come(ledger, ledger.invite(NAME, now, addresses=addresses), keyring, now)


def test_a_removed_site_of_the_same_user(ledger: Ledger, authority: Authority, keyring: Keyring) -> None:
    """It was never invited, and its name was its own: the discovery file brings it back no more."""
    secret, csr = new_secret(), keyring.csr(NAME)
    proof = prove(secret, authority.federation_id, name=NAME, csr_pem=csr)
    ledger.admit_local(NAME, csr, proof=proof, secret=secret)
    ledger.close(NAME)
    ledger.close("hospital_b")
    ledger.close("../x")
    with pytest.raises(SiteRemoved):
        ledger.admit_local(NAME, csr, proof=proof, secret=secret)


def test_keys_wait_until_they_are_approved(
    ledger: Ledger, invitation: Invitation, keyring: Keyring, now: datetime, tmp_path: Path
) -> None:
    """Those that came first, whoever comes after them; who waits is never too late, and a restart forgets nothing."""
    with pytest.raises(ApprovalAwaited) as awaited:
        come(ledger, invitation, keyring, now, approve=True)
    assert keyring.fingerprint == awaited.value.fingerprint
    assert tell_fingerprint(keyring.fingerprint) in awaited.value.answer
    assert [(NAME, keyring.fingerprint)] == list(ledger.waiting())
    with pytest.raises(InvitationUsed):
        come(ledger, invitation, Keyring.open(tmp_path / "other"), now, approve=True)
    again = Ledger(tmp_path / "invitations", invitation.ca_pem)
    for said in ("0" * 8, keyring.fingerprint[1:]):
        with pytest.raises(IdentityError, match="another fingerprint"):
            again.decide(NAME, "approved", fingerprint=said)
    assert keyring.fingerprint == again.decide(
        NAME, "approved", fingerprint=tell_fingerprint(keyring.fingerprint)
    )
    again.decide(NAME, "approved")
    come(ledger, invitation, keyring, now + 30 * DAY, approve=True)
    assert [] == list(ledger.waiting())


def test_who_is_denied_stays_out(
    ledger: Ledger, invitation: Invitation, keyring: Keyring, now: datetime, addresses: Addresses
) -> None:
    """Until the operator invites it once more."""
    with pytest.raises(ApprovalAwaited):
        come(ledger, invitation, keyring, now, approve=True)
    ledger.decide(NAME, "denied")
    for approve in (True, False):
        with pytest.raises(ApprovalDenied):
            come(ledger, invitation, keyring, now, approve=approve)
    come(ledger, ledger.invite(NAME, now, addresses=addresses, again=True), keyring, now)


def test_nobody_waits(ledger: Ledger, invitation: Invitation, keyring: Keyring, now: datetime) -> None:
    """A site that is in, one that was never invited, a name that is none: there is nothing to decide."""
    come(ledger, invitation, keyring, now)
    for name in (NAME, "hospital_b", "../x"):
        with pytest.raises(IdentityError, match="waits to be approved"):
            ledger.decide(name, "approved")
    with pytest.raises(InvitationExpired):
        come(ledger, invitation, keyring, now + 30 * DAY)
