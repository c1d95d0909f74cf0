"""Invitations: good once, for one key, for a week; every other use has its own clear end."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pfl_common.files import locks
from pfl_common.identity import (
    Addresses,
    Authority,
    BadRequest,
    IdentityError,
    Invitation,
    InvitationExpired,
    InvitationUsed,
    Keyring,
    Ledger,
    NameTaken,
    Refusal,
    UnknownSite,
    WrongProof,
    certificates,
    new_secret,
)
from pfl_common.identity.proofs import prove

DAY = timedelta(days=1)


@pytest.fixture
def csr(keyring: Keyring) -> bytes:
    """The request of the site that was invited."""
    return keyring.csr("hospital_a")


@pytest.fixture
def other_csr(tmp_path: Path) -> bytes:
    """A request with another key for the same name."""
    return Keyring.open(tmp_path / "other").csr("hospital_a")


def test_an_invited_site_comes_in(ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime) -> None:
    """The right proof is accepted, and again for the same key: the answer may have been lost."""
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now + DAY)
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now + 2 * DAY)


def test_an_invitation_survives_a_restart(
    tmp_path: Path, authority: Authority, invitation: Invitation, csr: bytes, other_csr: bytes, now: datetime
) -> None:
    """What was used stays used in the next process."""
    Ledger(tmp_path / "invitations", authority.ca_pem).redeem(
        "hospital_a", csr, proof=invitation.prove(csr), now=now
    )
    with pytest.raises(InvitationUsed):
        Ledger(tmp_path / "invitations", authority.ca_pem).redeem(
            "hospital_a", other_csr, proof=invitation.prove(other_csr), now=now
        )


def test_a_used_invitation_lets_no_second_key_in(
    ledger: Ledger, invitation: Invitation, csr: bytes, other_csr: bytes, now: datetime
) -> None:
    """A caller that comes second, with the right secret even, is refused and the first one stays."""
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)
    with pytest.raises(InvitationUsed) as caught:
        ledger.redeem("hospital_a", other_csr, proof=invitation.prove(other_csr), now=now)
    assert "already_used" == caught.value.code == caught.value.public_code
    assert "pfl invite hospital_a --again" in caught.value.answer
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)


@pytest.mark.parametrize("used", [False, True])
def test_an_expired_invitation_is_refused(
    ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime, used: bool
) -> None:
    """Good to the last second of the seventh day, used or not."""
    last = invitation.expires
    assert 7 * DAY == last - now.replace(microsecond=0)
    if used:
        ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=last)
    with pytest.raises(InvitationExpired, match="2030-05-24 12:00"):
        ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=last + timedelta(seconds=1))


@pytest.mark.parametrize("name", ["hospital_b", "../invitations/hospital_a", "", "operator", "hospital_a\0"])
def test_a_site_nobody_invited_is_refused(
    ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime, name: str
) -> None:
    """Unknown and impossible names end alike, and no path is made from them."""
    with pytest.raises(UnknownSite):
        ledger.redeem(name, csr, proof=invitation.prove(csr), now=now)


def test_a_proof_is_good_for_its_own_request_site_and_federation_only(
    ledger: Ledger, invitation: Invitation, csr: bytes, other_csr: bytes, addresses: Addresses, now: datetime
) -> None:
    """A proof overheard or misdirected opens nothing else."""
    ledger.invite("hospital_b", now, addresses=addresses)
    cases = [
        ("hospital_a", invitation.prove(other_csr)),
        ("hospital_b", invitation.prove(csr)),
        ("hospital_a", replace(invitation, federation_id="0" * 16).prove(csr)),
        ("hospital_a", replace(invitation, secret=new_secret()).prove(csr)),
        ("hospital_a", invitation.prove(csr)[:-1]),
        ("hospital_a", b""),
    ]
    for name, proof in cases:
        with pytest.raises(WrongProof):
            ledger.redeem(name, csr, proof=proof, now=now)


def test_the_proof_is_the_documented_formula(invitation: Invitation, csr: bytes) -> None:
    """Computed once more from RFC 5869 and RFC 2104 alone: another program could make it too."""

    def joined(*parts: bytes) -> bytes:
        return b"".join(len(part).to_bytes(4, "big") + part for part in parts)

    federation, site = invitation.federation_id.encode(), b"hospital_a"
    request = hashlib.sha256(x509.load_pem_x509_csr(csr).public_bytes(Encoding.DER)).digest()
    extracted = hmac.digest(federation, invitation.secret, "sha256")
    key = hmac.digest(extracted, joined(b"pfl enrolment key 1", site) + b"\x01", "sha256")
    message = joined(b"pfl enrolment proof 1", federation, site, request)
    assert hmac.digest(key, message, "sha256") == invitation.prove(csr)


def test_strangers_learn_nothing_about_who_is_invited(
    ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime
) -> None:
    """An unknown name and a wrong proof give the caller the same answer, and the log two different codes."""
    refusals: list[Refusal] = []
    for name in ("hospital_a", "hospital_z"):
        with pytest.raises(Refusal) as caught:
            ledger.redeem(name, csr, proof=b"guess", now=now)
        refusals.append(caught.value)
    assert ["wrong_proof", "unknown_site"] == [refusal.code for refusal in refusals]
    assert 1 == len({(refusal.answer, refusal.public_code) for refusal in refusals})


def test_wrong_proofs_keep_nobody_out(
    ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime
) -> None:
    """A secret of 256 bits needs no lock, and a lock is a way to keep an invited site out."""
    for _ in range(100):
        with pytest.raises(WrongProof):
            ledger.redeem("hospital_a", csr, proof=b"guess", now=now)
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)


def test_a_record_with_a_lock_of_an_older_release_is_read(
    tmp_path: Path, ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime
) -> None:
    """It lets the site in."""
    path = tmp_path / "invitations" / "hospital_a.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"wrong_proofs": 10}))
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)


class Steps:
    """Whatever a ledger does that takes time, in its order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        for owner, name in (
            (locks, "wait_for"),
            (os, "open"),
            (os, "fsync"),
            (os, "replace"),
            (os, "stat"),
            (hmac, "digest"),
            (hmac, "compare_digest"),
            (json, "loads"),
            (certificates, "load_request"),
            (Path, "exists"),
        ):
            monkeypatch.setattr(owner, name, self._noting(name, getattr(owner, name)))

    def _noting(self, name: str, act: Callable[..., object]) -> Callable[..., object]:
        def noted(*words: object, **named: object) -> object:
            self.done.append(name)
            return act(*words, **named)

        return noted


def test_the_same_is_done_for_every_name(
    ledger: Ledger,
    invitation: Invitation,
    csr: bytes,
    other_csr: bytes,
    addresses: Addresses,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Invited, used, expired, unknown or impossible: who has no proof cannot tell by the time it takes."""
    used = ledger.invite("used", now, addresses=addresses)
    ledger.redeem("used", other_csr, proof=used.prove(other_csr), now=now)
    ledger.invite("expired", now - 30 * DAY, addresses=addresses)
    proof, steps, seen = bytes(32), Steps(monkeypatch), {}
    for name in ("hospital_a", "used", "expired", "unknown", "../etc/passwd", "operator"):
        steps.done.clear()
        with pytest.raises(Refusal):
            ledger.redeem(name, csr, proof=proof, now=now)
        seen[name] = tuple(steps.done)
    assert 1 == len(set(seen.values())), seen
    assert {"wait_for", "digest", "compare_digest", "loads"} <= set(seen["unknown"])
    assert not {"fsync", "replace"} & set(seen["hospital_a"]), "strangers write nothing"


def test_an_unreadable_request_costs_the_site_nothing(
    ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime
) -> None:
    """Junk is refused before any record is touched."""
    for _ in range(12):
        with pytest.raises(BadRequest):
            ledger.redeem("hospital_a", b"junk", proof=b"guess", now=now)
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)


def test_the_sites_that_are_known_are_counted(
    ledger: Ledger, invitation: Invitation, addresses: Addresses, now: datetime
) -> None:
    """For so many the coordinator has to have room; the record that stands for nobody is no site."""
    assert 1 == ledger.count()
    ledger.invite("hospital_b", now, addresses=addresses)
    assert 2 == ledger.count()


def test_inviting_twice_needs_again(
    ledger: Ledger, invitation: Invitation, csr: bytes, addresses: Addresses, now: datetime
) -> None:
    """A second invitation is made only when asked for, and then the first one is worth nothing."""
    with pytest.raises(IdentityError, match="--again"):
        ledger.invite("hospital_a", now, addresses=addresses)
    second = ledger.invite("hospital_a", now, addresses=addresses, again=True)
    with pytest.raises(WrongProof):
        ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)
    ledger.redeem("hospital_a", csr, proof=second.prove(csr), now=now)


def test_again_readmits_a_site_that_lost_its_keys(
    ledger: Ledger, invitation: Invitation, csr: bytes, other_csr: bytes, addresses: Addresses, now: datetime
) -> None:
    """The operator's word replaces the old key by a new one."""
    ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)
    second = ledger.invite("hospital_a", now, addresses=addresses, again=True)
    ledger.redeem("hospital_a", other_csr, proof=second.prove(other_csr), now=now)


@pytest.mark.parametrize("name", ["operator", "Hospital A", "../a"])
def test_nobody_is_invited_under_an_impossible_name(
    ledger: Ledger, addresses: Addresses, now: datetime, name: str
) -> None:
    """The rule for names holds before anything is written."""
    with pytest.raises(IdentityError):
        ledger.invite(name, now, addresses=addresses)


def test_the_coordinator_keeps_no_secret(tmp_path: Path, invitation: Invitation) -> None:
    """The ledger's files are private and hold a derived key, not the secret."""
    kept = sorted((tmp_path / "invitations").iterdir())
    assert [".lock", ".nobody", "hospital_a.json"] == [path.name for path in kept]
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in kept}
    assert 0o700 == stat.S_IMODE((tmp_path / "invitations").stat().st_mode)
    content = b"".join(path.read_bytes() for path in kept)
    assert invitation.secret not in content
    assert invitation.secret.hex().encode() not in content


def test_the_secret_is_in_nothing_the_site_sends_or_logs(invitation: Invitation, csr: bytes) -> None:
    """Neither the proof nor the request nor a representation holds the secret."""
    sent = invitation.prove(csr) + csr
    assert invitation.secret not in sent
    assert invitation.secret.hex() not in sent.hex()
    assert invitation.secret.hex() not in repr(invitation)
    assert repr(invitation.secret) not in repr(invitation)


def test_a_damaged_record_names_the_file(
    tmp_path: Path, ledger: Ledger, invitation: Invitation, csr: bytes, now: datetime
) -> None:
    """A torn record is the operator's to mend, not a refusal of the site."""
    (tmp_path / "invitations" / "hospital_a.json").write_bytes(b'{"site": "hosp')
    with pytest.raises(IdentityError, match=r"hospital_a\.json is damaged"):
        ledger.redeem("hospital_a", csr, proof=invitation.prove(csr), now=now)


_RACER = """
import sys
from datetime import datetime
from pathlib import Path
from pfl_common.identity import Ledger, Refusal, IdentityError, Addresses
folder, ca, csr, proof, moment = sys.argv[1:]
ledger = Ledger(Path(folder), Path(ca).read_bytes())
print("ready", flush=True)
sys.stdin.readline()
try:
    if csr == "-":
        ledger.invite("hospital_a", datetime.fromisoformat(moment), addresses=Addresses("c:1", "e:2"))
    else:
        csr_pem, now = Path(csr).read_bytes(), datetime.fromisoformat(moment)
        ledger.redeem("hospital_a", csr_pem, proof=bytes.fromhex(proof), now=now)
    print("won")
except (Refusal, IdentityError) as reason:
    print(type(reason).__name__)
"""


def race(*arguments: list[str]) -> list[str]:
    """Start one process for each list of arguments, let them go at once, and give what each said."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, *each], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for each in arguments
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert "ready\n" == racer.stdout.readline()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return sorted(racer.communicate(timeout=30)[0].strip() for racer in racers)


def test_of_two_processes_that_redeem_at_once_one_wins(
    tmp_path: Path, authority: Authority, invitation: Invitation, csr: bytes, other_csr: bytes, now: datetime
) -> None:
    """Two keys with the right secret, at the same moment in two processes: one comes in."""
    (tmp_path / "ca.pem").write_bytes(authority.ca_pem)
    arguments = []
    for number, request in enumerate((csr, other_csr)):
        (tmp_path / f"{number}.csr").write_bytes(request)
        proof = invitation.prove(request).hex()
        files = [str(tmp_path / "invitations"), str(tmp_path / "ca.pem"), str(tmp_path / f"{number}.csr")]
        arguments.append([*files, proof, now.isoformat()])
    assert ["InvitationUsed", "won"] == race(*arguments)


def test_of_two_processes_that_invite_at_once_one_wins(
    tmp_path: Path, authority: Authority, now: datetime
) -> None:
    """Two operators invite the same site: one file is written, the other command says `--again`."""
    (tmp_path / "ca.pem").write_bytes(authority.ca_pem)
    arguments = [str(tmp_path / "invitations"), str(tmp_path / "ca.pem"), "-", "", now.isoformat()]
    assert ["IdentityError", "won"] == race(arguments, arguments)


def local_proof(authority: Authority, secret: bytes, csr: bytes) -> bytes:
    """What a site of the same user sends."""
    return prove(secret, authority.federation_id, name="hospital_a", csr_pem=csr)


def test_a_site_of_the_same_user_comes_in_as_often_as_it_likes(
    ledger: Ledger, authority: Authority, csr: bytes
) -> None:
    """The local secret is no one-time secret, and a later coordinator process may have another one."""
    for secret in (new_secret(), new_secret()):
        for _ in range(2):
            ledger.admit_local("hospital_a", csr, proof=local_proof(authority, secret, csr), secret=secret)


def test_two_folders_of_one_name_are_refused(
    ledger: Ledger, authority: Authority, csr: bytes, other_csr: bytes
) -> None:
    """The second one is told about `--name`; after `forget` the name is free."""
    secret = new_secret()
    proof, other_proof = (local_proof(authority, secret, request) for request in (csr, other_csr))
    ledger.admit_local("hospital_a", csr, proof=proof, secret=secret)
    with pytest.raises(NameTaken, match="--name"):
        ledger.admit_local("hospital_a", other_csr, proof=other_proof, secret=secret)
    ledger.forget("hospital_a")
    ledger.admit_local("hospital_a", other_csr, proof=other_proof, secret=secret)


def test_a_local_site_cannot_take_an_invited_name(
    ledger: Ledger, authority: Authority, invitation: Invitation, csr: bytes
) -> None:
    """The name of a site that is invited is not free for another."""
    secret = new_secret()
    with pytest.raises(NameTaken):
        ledger.admit_local("hospital_a", csr, proof=local_proof(authority, secret, csr), secret=secret)


def test_a_wrong_local_proof_is_refused(ledger: Ledger, authority: Authority, csr: bytes) -> None:
    """Who has not read the discovery file is no site of this user."""
    with pytest.raises(WrongProof):
        ledger.admit_local(
            "hospital_a", csr, proof=local_proof(authority, new_secret(), csr), secret=new_secret()
        )


def test_a_local_admission_cannot_be_redeemed(
    ledger: Ledger, authority: Authority, csr: bytes, now: datetime
) -> None:
    """The record of a local site is not an invitation anybody could hold."""
    secret = new_secret()
    proof = local_proof(authority, secret, csr)
    ledger.admit_local("hospital_a", csr, proof=proof, secret=secret)
    with pytest.raises(WrongProof):
        ledger.redeem("hospital_a", csr, proof=proof, now=now)
