"""What the operator decides counts at once, on real lines: about sites, their keys, and the authority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.connection.operator_link import Decided
from pfl_client.onboarding import admission
from pfl_client.onboarding.enrolment import enrol_invited, enrol_same_user
from pfl_common.errors import Refused, UserError
from pfl_common.identity import Authority, Keyring, Ledger, tell_fingerprint, write_join_file
from pfl_common.spec.run import Description
from pfl_common.wire import administration_pb2 as pb
from tests.network.federation import HASTY, Federation
from tests.network.test_admission import at_the_door
from tests.network.test_enrolment import invite

DIGITS = Description((1, 28, 28), ("0", "1"), 120)
NAME = "hospital_a"


@pytest.fixture
async def careful(tmp_path: Path) -> AsyncIterator[Federation]:
    """A coordinator whose operator approves each site."""
    folder = tmp_path / "careful"
    folder.mkdir()
    one = Federation(folder, approve=True)
    await one.start()
    yield one
    await one.stop()


async def decide(federation: Federation, call: str, name: str = NAME, fingerprint: str = "") -> Decided:
    """What `pfl remove` and the others do."""
    async with federation.operator() as link:
        return await link.decide(call, name, fingerprint)


async def enrol(federation: Federation, folder: Path, *, again: bool = False) -> Keyring:
    """A site comes by a fresh invitation."""
    ledger, keyring = federation.ledger, Keyring.open(folder)
    invitation = ledger.invite(NAME, federation.now, addresses=federation.addresses, again=again)
    federation.authority.cards.readmit(NAME)
    await enrol_invited(keyring, invitation, patience=HASTY)
    return keyring


async def test_a_removed_site_is_refused_on_a_line_that_is_open(
    federation: Federation, tmp_path: Path
) -> None:
    """Whatever session it holds, its next call is final; it can neither renew nor enrol by what it has."""
    invitation, keyring = invite(federation), Keyring.open(tmp_path / "keys")
    await enrol_invited(keyring, invitation, patience=HASTY)
    async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
        await link.join(DIGITS)
        said = await decide(federation, "Remove")
        assert NAME in said.words
        assert ("remove", NAME) in federation.desk.said
        for call in (lambda: link.heartbeat("000001-1-train", 1), lambda: link.join(DIGITS), link.leave):
            with pytest.raises((NotAdmitted, Refused)) as refused:
                await call()
            assert "not_in_the_run" == refused.value.code
        for again in (invitation, replace(invitation, site=NAME)):
            with pytest.raises(NotAdmitted, match="removed"):
                await enrol_invited(keyring, again, patience=HASTY)
            with pytest.raises(NotAdmitted):
                await enrol_invited(Keyring.open(tmp_path / "new"), again, patience=HASTY)
    await decide(federation, "Remove")


async def test_a_new_invitation_brings_a_removed_site_back(federation: Federation, tmp_path: Path) -> None:
    """No --again is wanted, for nothing of the old one is left; a renewal by the old keys is still refused."""
    old = await enrol(federation, tmp_path / "old")
    await decide(federation, "Remove")
    new = await enrol(federation, tmp_path / "new")
    async with GrpcLink(federation.addresses.control, new, patience=HASTY) as link:
        await link.join(DIGITS)
    async with GrpcLink(federation.addresses.control, old, patience=HASTY) as link:
        with pytest.raises((NotAdmitted, Refused)) as refused:
            await link.leave()
    assert "other_keys" == refused.value.code


async def test_a_site_of_the_same_user_stays_removed(federation: Federation, tmp_path: Path) -> None:
    """The discovery file is not an invitation."""
    keyring = Keyring.open(tmp_path / "keys")
    await enrol_same_user(keyring, federation.found, NAME, patience=HASTY)
    await decide(federation, "Remove")
    for folder in ("keys", "others"):
        with pytest.raises(NotAdmitted, match="removed"):
            await enrol_same_user(Keyring.open(tmp_path / folder), federation.found, NAME, patience=HASTY)


async def test_it_stays_so_after_a_restart(federation: Federation, tmp_path: Path) -> None:
    """Both decisions are on disk before they are answered."""
    keyring = await enrol(federation, tmp_path / "keys")
    await decide(federation, "Remove")
    authority = Authority.open(federation.folder / "authority")
    with pytest.raises(Refused) as refused:
        authority.card_of(NAME, now=federation.now)
    assert "not_in_the_run" == refused.value.code
    ledger = Ledger(federation.folder / "ledger", authority.ca_pem)
    assert keyring.fingerprint == ledger.holder_of(NAME)


async def test_revoked_keys_are_worthless_and_the_site_comes_back(
    federation: Federation, tmp_path: Path
) -> None:
    """A thief with all of the site's folder and its used invitation gets in no more; the site does, with new keys."""
    invitation, stolen = invite(federation), Keyring.open(tmp_path / "keys")
    await enrol_invited(stolen, invitation, patience=HASTY)
    async with GrpcLink(federation.addresses.control, stolen, patience=HASTY) as link:
        await link.join(DIGITS)
        await decide(federation, "Revoke")
        with pytest.raises((NotAdmitted, Refused)) as refused:
            await link.join(DIGITS)
        assert "revoked" == refused.value.code
    # With the same key of its certificate, and fresh ones to sign and receive with.
    (tmp_path / "keys" / "site.seal").unlink()
    with pytest.raises(NotAdmitted, match="revoked"):
        await enrol_invited(Keyring.open(tmp_path / "keys"), invitation, patience=HASTY)
    new = await enrol(federation, tmp_path / "new", again=True)
    async with GrpcLink(federation.addresses.control, new, patience=HASTY) as link:
        await link.join(DIGITS)
    assert ("remove", NAME) not in federation.desk.said


async def test_only_the_operator_decides(federation: Federation) -> None:
    """A site's certificate opens none of these calls, and a name that nobody has is told so."""
    await enrol(federation, federation.folder / "keys")
    async with federation.operator() as operator, federation.link("hospital_b") as link:
        for call in ("Remove", "Revoke", "Approve", "Deny"):
            with pytest.raises(Refused, match="hospital_x"):
                await operator.decide(call, "hospital_x")
            with pytest.raises(NotAdmitted) as refused:
                request = pb.SiteRequest(site=NAME)
                await link._line.ask(f"pfl.v1.Administration/{call}", request, pb.Decided, seconds=10)
            assert "not_the_operator" == refused.value.code
        with pytest.raises(Refused):
            await operator.decide("Remove", "../x")
    assert [] == [said for said in federation.desk.said if said[0] == "remove"]


async def test_a_site_waits_until_it_is_approved(
    careful: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ends say so and show one fingerprint; another one approves nothing; then the site comes in by itself."""
    monkeypatch.setattr(admission, "ASK_SECONDS", 0.01)
    file = tmp_path / f"{NAME}.join"
    write_join_file(invite(careful), file)
    site = at_the_door(tmp_path, NAME, join=file)
    coming = asyncio.create_task(site.identify())
    while not careful.notices.waiting:
        assert not coming.done(), coming
        await asyncio.sleep(0)
    ((name, keys),) = careful.notices.waiting.items()
    assert (NAME, keys) == (name, dict(careful.ledger.waiting())[NAME])
    with pytest.raises(Refused, match="another fingerprint"):
        await decide(careful, "Approve", fingerprint="0000 0000")
    said = await decide(careful, "Approve", fingerprint=tell_fingerprint(keys))
    admitted = await coming
    assert (keys, tell_fingerprint(keys)) == (admitted.keyring.fingerprint, said.fingerprint)
    assert {} == careful.notices.waiting
    told = "".join(capsys.readouterr())
    assert 2 == told.count(tell_fingerprint(keys)), "once at each end"
    assert f"pfl approve {NAME}" in told
    async with GrpcLink(admitted.address, admitted.keyring, patience=HASTY) as link:
        await link.join(DIGITS)


async def test_a_site_that_is_denied(careful: Federation, tmp_path: Path) -> None:
    """Also one of the same user has to be approved; who is denied is told so for good."""
    keyring = Keyring.open(tmp_path / "keys")
    with pytest.raises(NotAdmitted) as refused:
        await enrol_same_user(keyring, careful.found, NAME, patience=HASTY)
    assert "waiting" == refused.value.code
    await decide(careful, "Deny")
    with pytest.raises(NotAdmitted, match="did not approve") as refused:
        await enrol_same_user(keyring, careful.found, NAME, patience=HASTY)
    assert "denied" == refused.value.code


async def test_a_new_authority_takes_over_without_a_pause(federation: Federation, tmp_path: Path) -> None:
    """Both are trusted while sites renew; afterwards the new one alone, and who did not renew in time is locked out."""
    renewing, late = await enrol(federation, tmp_path / "keys"), federation.keyring("hospital_b")
    async with federation.operator() as operator:
        begun = await operator.rotate()
        assert [NAME, "hospital_b"] == list(begun.lacking)
        await operator.rotate()
        assert [NAME, "hospital_b"] == list((await operator.rotate(finish=True)).lacking)
    assert federation.authority.rotating
    later = federation.now + timedelta(days=21)
    async with GrpcLink(federation.addresses.control, renewing, patience=HASTY, clock=lambda: later) as link:
        assert await link.renew()
        await link.join(DIGITS)
    assert 2 == renewing.ca_pem.count(b"BEGIN CERTIFICATE")
    new = Keyring.open(tmp_path / "newcomer")
    found = replace(federation.found, ca_pem=federation.authority.ca_pem)
    await enrol_same_user(new, found, "hospital_c", patience=HASTY)
    async with federation.operator() as operator:
        kept = await operator.rotate(finish=True)
        assert ["hospital_b"] == list(kept.lacking)
        assert federation.authority.rotating
        await operator.rotate(finish=True, anyway=True)
    assert federation.authority.federation_id == renewing.federation_id == new.federation_id
    for keyring in (renewing, new):
        async with GrpcLink(federation.addresses.control, keyring, patience=HASTY) as link:
            await link.join(DIGITS)
    async with GrpcLink(federation.addresses.control, late, patience=HASTY) as link:
        with pytest.raises((Unreachable, UserError)):
            await link.join(DIGITS)
    again = Authority.open(federation.folder / "authority")
    assert (federation.authority.ca_pem, 1) == (again.ca_pem, again.ca_pem.count(b"BEGIN CERTIFICATE"))
    assert "hospital_b" == again.cards.signers("hospital_b")[0].name, "what it signed before is still its own"


async def test_a_federation_without_sites(federation: Federation) -> None:
    """Nobody lacks the new authority; what has not begun cannot be finished."""
    async with federation.operator() as operator:
        with pytest.raises(Refused, match="--finish"):
            await operator.rotate(finish=True)
        await operator.rotate()
        await operator.rotate(finish=True)
    assert (2, False) == (federation.rotations, federation.authority.rotating)
