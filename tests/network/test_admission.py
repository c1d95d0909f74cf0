"""Who a site is: what it hears when that may be a mistake, and the keys by which it is let in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_client.onboarding.admission import Admission, Admitted, find_data
from pfl_client.settings import ClientSettings
from pfl_common.errors import SettingError, StateError
from pfl_common.identity import discovery, write_join_file
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


@pytest.fixture
def reached(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> Federation:
    """A coordinator of the same user, found on this machine."""
    monkeypatch.setattr(discovery, "find", lambda server: federation.found)
    return federation


async def come(tmp_path: Path, data: str, **settings: object) -> str:
    """A site is let in with this data folder and takes its state folder; gives its name."""
    folder = find_data(ClientSettings(data=tmp_path / data))
    admission = Admission(ClientSettings(data=folder, state=tmp_path / "sites", **settings), folder)
    admitted = await admission.identify()
    admission.claim(admitted.folder)
    assert tmp_path / "sites" / admitted.keyring.federation_id / admission.name == admitted.folder
    return admission.name


def link(tmp_path: Path, name: str, target: str) -> None:
    """A data folder on another disk, and a link to it; an earlier link of this name goes."""
    (tmp_path / target).mkdir(parents=True, exist_ok=True)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(tmp_path / target)


async def test_a_link_is_the_site_and_not_its_target(reached: Federation, tmp_path: Path) -> None:
    """It comes again under its name, by whatever path; data moved to another disk are the same site's."""
    link(tmp_path, "hospital_a", "disk7/x")
    assert "hospital_a" == await come(tmp_path, "hospital_a") == await come(tmp_path, "disk7/../hospital_a")
    (tmp_path / "disk7" / "x").rename(tmp_path / "disk7" / "y")
    link(tmp_path, "hospital_a", "disk7/y")
    assert "hospital_a" == await come(tmp_path, "hospital_a")


async def test_a_site_that_was_named_by_its_target(reached: Federation, tmp_path: Path) -> None:
    """One folder by two names is one site: which of them it shall be is asked, before anybody hears of a second one."""
    link(tmp_path, "hospital_a", "disk7/x")
    assert "x" == await come(tmp_path, "disk7/x")
    with pytest.raises(SettingError, match="takes part already, as the site x") as refused:
        await come(tmp_path, "hospital_a")
    assert ("--name x;" in refused.value.advice, "--name hospital_a" in refused.value.advice) == (True, True)
    assert ["x"] == [path.parent.name for path in tmp_path.glob("sites/*/*/keys")]
    assert "x" == await come(tmp_path, "hospital_a", name="x")
    assert "hospital_a" == await come(tmp_path, "hospital_a", name="hospital_a")
    assert "hospital_a" == await come(tmp_path, "hospital_a"), "it was said once"


async def test_a_link_that_leads_elsewhere(reached: Federation, tmp_path: Path) -> None:
    """Other data under the same name do not go on with the first ones' model, unless that is said."""
    link(tmp_path, "hospital_a", "disk7/x")
    await come(tmp_path, "hospital_a")
    link(tmp_path, "hospital_a", "disk7/y")
    with pytest.raises(
        SettingError, match=r"another data folder is already called hospital_a here: .*disk7/x"
    ):
        await come(tmp_path, "hospital_a")
    assert "hospital_a" == await come(tmp_path, "hospital_a", name="hospital_a")
