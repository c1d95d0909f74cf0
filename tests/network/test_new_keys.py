"""A site whose keys the coordinator knows no more: a newer invitation gives it others, an older one changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pfl_client.connection.grpc_link import GrpcLink
from pfl_client.connection.link import NotAdmitted
from pfl_client.onboarding import admission
from pfl_client.onboarding.admission import Admission, Admitted
from pfl_client.process import Site
from pfl_client.settings import ClientSettings
from pfl_common.errors import Refused, UserError
from pfl_common.identity import write_join_file
from pfl_common.spec.messages import Over
from pfl_common.spec.run import Description
from tests.network.federation import HASTY, Federation

DIGITS = Description((1, 28, 28), ("0", "1"), 120)
NAME = "hospital_a"


class Killed(Exception):
    """A sudden end."""


def invite(federation: Federation, number: int) -> Path:
    """The file that the operator sends; the one before is worth nothing any more."""
    invitation = federation.ledger.invite(
        NAME, federation.now, addresses=federation.addresses, again=number > 1
    )
    file = federation.folder / f"{number}.join"
    write_join_file(invitation, file)
    return file


class Patient(Site):
    """A site that registers and says goodbye, instead of training."""

    async def _take_part(self, admitted: Admitted) -> Over:
        async with GrpcLink(admitted.address, admitted.keyring, patience=HASTY) as link:
            await link.join(DIGITS)
        return Over("finished")


def on(machine: Path, join: Path | None) -> Patient:
    """The site, started on this machine."""
    data = machine / NAME
    data.mkdir(parents=True, exist_ok=True)
    return Patient(ClientSettings(data=data, join=join, state=machine / "sites"))


def keys_on(machine: Path, folder: str = "keys") -> dict[str, bytes]:
    """All that it has on this machine, byte for byte."""
    files = (machine / "sites").glob(f"*/{NAME}/{folder}/site.*")
    return {file.name: file.read_bytes() for file in files}


@pytest.fixture
async def twice(federation: Federation, tmp_path: Path) -> tuple[Path, Path]:
    """The site was let in here and, with a second invitation, elsewhere: here its keys are nobody's any more."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for number, machine in enumerate((here, elsewhere), 1):
        await on(machine, invite(federation, number)).serve()
    return here, elsewhere


def file(federation: Federation, number: int) -> Path:
    """An invitation that was written."""
    return federation.folder / f"{number}.join"


async def test_without_a_newer_invitation_it_is_said_what_to_do(
    federation: Federation, twice: tuple[Path, Path]
) -> None:
    """The keys stay as they are, and nothing is tried that could lock the invitation that is in force."""
    here, before = twice[0], keys_on(twice[0])
    with pytest.raises(UserError) as refused:
        await on(here, file(federation, 1)).serve()
    words = str(refused.value)
    for phrase in (
        f"{NAME}/keys",
        "last let in with",
        "stop this one",
        f"pfl invite {NAME} --again",
        "--join",
    ):
        assert phrase in words
    assert 2 == refused.value.exit_code
    assert before == keys_on(here)
    assert {} == federation.office.meter.refusals


async def test_a_newer_invitation_gives_new_keys(
    federation: Federation, twice: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The site is let in with them at once and from then on; the old ones are kept aside, and that is said."""
    here, before = twice[0], keys_on(twice[0])
    newest = invite(federation, 3)
    await on(here, newest).serve()
    told = "".join(capsys.readouterr())
    assert "enrolling anew" in told
    assert f"{NAME}/keys.1" in told
    assert before == keys_on(here, "keys.1")
    new = keys_on(here)
    assert new["site.key"] != before["site.key"]
    await on(here, newest).serve()
    assert new == keys_on(here)
    assert "enrolling anew" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("kept_note", [True, False], ids=["noted", "keys of an older release"])
async def test_an_invitation_that_was_used_changes_nothing(
    federation: Federation, twice: tuple[Path, Path], *, kept_note: bool
) -> None:
    """Another's, or one that is worth nothing any more: it is shown once and no more, and the keys stay."""
    here, elsewhere = twice
    number = 2 if kept_note else 1
    if not kept_note:
        next(here.glob(f"sites/*/{NAME}/keys/site.tried")).unlink()
    for _ in range(3):
        with pytest.raises(UserError, match="--again"):
            await on(here, file(federation, number)).serve()
        assert 1 == sum(federation.office.meter.refusals.values())
    assert {} == keys_on(here, "keys.1")
    before = keys_on(elsewhere)
    await on(elsewhere, file(federation, 1)).serve()
    assert before == keys_on(elsewhere), "keys that are in force are never exchanged"


async def test_keys_that_go_out_of_force_during_a_run(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said in the same words as at the start, not as a fault of the program."""

    async def ask(self: Patient, admitted: Admitted) -> Over:
        raise Refused("other_keys", "not signed with the keys it was last let in with")

    monkeypatch.setattr(Patient, "_take_part", ask)
    with pytest.raises(UserError, match=f"pfl invite {NAME} --again"):
        await on(tmp_path, invite(federation, 1)).serve()


async def test_the_same_user_has_no_invitation(federation: Federation, tmp_path: Path) -> None:
    """The way on is an invitation, as for everybody else."""
    data = tmp_path / NAME
    data.mkdir()
    at_home = Admission(ClientSettings(data=data, state=tmp_path), data)
    admitted = Admitted(federation.addresses.control, tmp_path, federation.keyring(NAME))
    with pytest.raises(UserError, match=f"pfl invite {NAME} --again"):
        await at_home.enrol_anew(admitted, NotAdmitted("not signed", "other_keys"))


async def test_a_card_that_is_not_there_is_made_anew(
    federation: Federation, twice: tuple[Path, Path]
) -> None:
    """The coordinator was brought back from an older copy: with an invitation the site is let in, else it hears why."""
    here, card = twice[0], next((federation.folder / "authority").rglob(f"{NAME}.card"))
    card.unlink()
    with pytest.raises(UserError, match=f"no card of {NAME}"):
        await on(here, file(federation, 1)).serve()
    await on(here, invite(federation, 3)).serve()
    assert card.exists()


@pytest.mark.parametrize("at", ["before the exchange", "in the middle of it"])
async def test_a_kill_while_keys_are_exchanged(
    federation: Federation, twice: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """At the next start the site goes on with the keys that the invitation was spent on."""
    here, newest, rename = twice[0], invite(federation, 3), os.rename
    calls = 0 if at == "before the exchange" else 1

    def killed(source: Path, target: Path) -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(admission.os, "rename", killed)
    with pytest.raises(Killed):
        await on(here, newest)._story()
    monkeypatch.undo()
    fresh = keys_on(here, "keys.new")["site.key"]
    await on(here, newest).serve()
    assert fresh == keys_on(here)["site.key"]
    assert {} == federation.office.meter.refusals
