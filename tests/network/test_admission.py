"""Who a site is: what it hears when that may be a mistake, and the keys by which it is let in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client.admission import Admission, Admitted
from pfl_client.settings import ClientSettings
from pfl_common.errors import StateError
from pfl_common.identity import write_join_file
from tests.network.federation import Federation

OTHER_NAME = "the invitation is for a site of another name than the data folder's"


def invite(federation: Federation, name: str, *, again: bool = False) -> Path:
    """The file that the operator sends."""
    invitation = federation.ledger.invite(name, federation.now, addresses=federation.addresses, again=again)
    file = federation.folder / f"{name}.join"
    write_join_file(invitation, file, replace=again)
    return file


def at_the_door(tmp_path: Path, data: str, **settings: object) -> Admission:
    """A site with this data folder that is started here."""
    folder = tmp_path / data
    folder.mkdir(exist_ok=True)
    chosen = ClientSettings(data=folder, state=tmp_path / "sites", **settings)
    return Admission(chosen, folder)


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [("hospital_a", "", 1), ("hospital_b", "", 0), ("hospital_a", "hospital_b", 0)],
    ids=["another's invitation", "its own", "the name was given"],
)
async def test_an_invitation_for_another_name(
    federation: Federation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    data: str,
    name: str,
    said: int,
) -> None:
    """It may be another site's: both names are said, once, and what to do; a folder may be called otherwise."""
    join = invite(federation, "hospital_b")
    for _ in range(2):
        admission = at_the_door(tmp_path, data, join=join, name=name)
        assert "hospital_b" == (await admission.identify()).keyring.name
    told = "".join(capsys.readouterr())
    assert (said, said) == (told.count(OTHER_NAME), told.count("pfl invite hospital_b --again"))
    assert said == told.count("hospital_a")


@pytest.mark.parametrize("invited", [True, False])
async def test_a_second_daemon_for_one_site(federation: Federation, tmp_path: Path, *, invited: bool) -> None:
    """It is told what it can do: another name is the site's own choice only where there is no invitation."""
    join = invite(federation, "hospital_a") if invited else None
    admission = at_the_door(tmp_path, "hospital_a", join=join)
    keyring = federation.keyring("hospital_a")
    admitted = Admitted("127.0.0.1:1", tmp_path / "sites" / "hospital_a", keyring)
    first = admission.hold(admitted)
    with pytest.raises(StateError, match="in use by another pfl-client") as refused:
        admission.hold(admitted)
    assert invited == ("pfl invite NAME" in refused.value.advice)
    assert invited != ("--name" in refused.value.advice)
    first.release()
    admission.hold(admitted).release()
