"""Where the coordinator's private keys lie: what a copied folder gives away, and what is refused."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest

from pfl_common.errors import IdentityError, PflError, SettingError
from pfl_common.identity import Authority, key_place
from pfl_common.identity.key_place import (
    AUTHORITY_FILE,
    SEALING_FILE,
    KeyPlace,
    check_key_files,
    choose_place,
    read_passphrase,
)

SECRET = b"correct horse battery staple"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passphrase is tried in a millisecond."""
    monkeypatch.setattr(key_place, "_MEMORY_COST", 1 << 4)


def private_bytes(folder: Path) -> list[Path]:
    """Files below a folder that hold a private key as anybody could read it."""
    return [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]


def begin(tmp_path: Path, now: datetime, place: KeyPlace | None = None) -> Authority:
    authority = Authority.open_or_create(tmp_path / "federation", now=now, place=place)
    authority.coordinator_keys()
    return authority


def test_beside_the_state_a_copy_opens_everything(tmp_path: Path, now: datetime) -> None:
    """The default on one machine, as the README says: who has the folder has the federation."""
    begin(tmp_path, now)
    stolen = Path(shutil.copytree(tmp_path / "federation", tmp_path / "stolen"))
    assert {AUTHORITY_FILE, SEALING_FILE} == {path.name for path in private_bytes(stolen)}
    assert Authority.open(stolen).coordinator_keys()


@pytest.mark.parametrize("kind", ["elsewhere", "locked"])
def test_elsewhere_or_locked_a_copy_opens_nothing(tmp_path: Path, now: datetime, kind: str) -> None:
    """The state folder alone has no private key in it, and neither authority nor updates open with it."""
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    folder = tmp_path / "federation"
    place = KeyPlace(keys, outside=True) if kind == "elsewhere" else KeyPlace(folder, passphrase=SECRET)
    authority = begin(tmp_path, now, place)
    stolen = Path(shutil.copytree(folder, tmp_path / "stolen"))
    assert [] == private_bytes(stolen)
    with pytest.raises(PflError):
        Authority.open(stolen)
    with pytest.raises(PflError):
        Authority.open_or_create(stolen, now=now)
    again = Authority.open_or_create(folder, now=now, place=place)
    assert authority.ca_pem == again.ca_pem
    assert authority.coordinator_keys().public() == again.coordinator_keys().public()


def test_a_wrong_passphrase_is_told_from_a_damaged_file(tmp_path: Path, now: datetime) -> None:
    """Neither opens anything; nothing of either passphrase is repeated."""
    begin(tmp_path, now, KeyPlace(tmp_path / "federation", passphrase=SECRET))
    with pytest.raises(IdentityError, match="does not open with this passphrase") as wrong:
        Authority.open(
            tmp_path / "federation", place=KeyPlace(tmp_path / "federation", passphrase=b"another one 12")
        )
    assert "another one" not in str(wrong.value)
    locked = tmp_path / "federation" / f"{AUTHORITY_FILE}.locked"
    content = locked.read_bytes()
    for spoilt, words in (
        (content.replace(b'"r": 8', b'"r": 9'), "is no file of locked keys"),
        (b"{}\n", "is no file of locked keys"),
        (content.replace(b'"n": 16', b'"n": 32'), "does not open"),
        (content[:-1], "does not open"),
    ):
        locked.write_bytes(spoilt)
        with pytest.raises(IdentityError, match=words):
            KeyPlace(tmp_path / "federation", passphrase=SECRET).read(AUTHORITY_FILE)


def test_the_first_start_with_a_passphrase_locks_what_lay_open(tmp_path: Path, now: datetime) -> None:
    """The same authority goes on, and no open key stays beside the locked one."""
    before, folder = begin(tmp_path, now), tmp_path / "federation"
    place = KeyPlace(folder, passphrase=SECRET)
    after = Authority.open_or_create(folder, now=now, place=place)
    assert before.ca_pem == after.ca_pem
    assert before.coordinator_keys().public() == after.coordinator_keys().public()
    assert [] == private_bytes(folder)
    with pytest.raises(IdentityError, match="--passphrase"):
        Authority.open(folder)


def test_keys_of_another_federation_are_refused(tmp_path: Path, now: datetime) -> None:
    """A state folder remembers whose it is; a second authority is never made beside it."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir(mode=0o700)
    begin(tmp_path, now, KeyPlace(tmp_path / "one", outside=True))
    Authority.open_or_create(
        tmp_path / "elsewhere", now=now, place=KeyPlace(tmp_path / "other", outside=True)
    )
    with pytest.raises(IdentityError, match="of federation"):
        begin(tmp_path, now, KeyPlace(tmp_path / "other", outside=True))
    with pytest.raises(IdentityError, match="belongs to a federation already"):
        begin(tmp_path, now, KeyPlace(tmp_path, outside=True))


def test_keys_are_moved_by_moving_their_files(tmp_path: Path, now: datetime) -> None:
    """What the README says an operator types."""
    before, keys = begin(tmp_path, now), tmp_path / "volume"
    keys.mkdir(mode=0o700)
    with pytest.raises(IdentityError, match=r"move authority\.pem"):
        begin(tmp_path, now, KeyPlace(keys, outside=True))
    for name in (AUTHORITY_FILE, SEALING_FILE):
        (tmp_path / "federation" / name).rename(keys / name)
    assert before.ca_pem == begin(tmp_path, now, KeyPlace(keys, outside=True)).ca_pem


def test_a_mounted_secret_is_read_through_its_links(tmp_path: Path, now: datetime) -> None:
    """A cluster mounts a secret as links; one that everybody may read is refused, in words."""
    begin(tmp_path, now)
    real, mounted = tmp_path / "..data", tmp_path / "mounted"
    (tmp_path / "federation").rename(real)
    mounted.mkdir()
    (mounted / AUTHORITY_FILE).symlink_to(real / AUTHORITY_FILE)
    place = KeyPlace(mounted, outside=True)
    assert b"PRIVATE KEY" in (place.read(AUTHORITY_FILE) or b"")
    (real / AUTHORITY_FILE).chmod(0o644)
    with pytest.raises(IdentityError, match="0644"):
        place.read(AUTHORITY_FILE)


def test_what_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, systemd's credentials, a file with a passphrase; each that is none says what it should be."""
    state, volume, words = tmp_path / "state" / "federation", tmp_path / "volume", tmp_path / "words"
    for folder in (state, volume):
        folder.mkdir(parents=True)
    words.write_bytes(SECRET + b"\r\nsecond line\n")
    words.chmod(0o600)
    assert KeyPlace(state) == choose_place(state, keys="", passphrase="")
    assert KeyPlace(volume, outside=True) == choose_place(state, keys=str(volume), passphrase="")
    assert KeyPlace(state, passphrase=SECRET) == choose_place(state, keys="", passphrase=str(words))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(volume))
    assert volume == choose_place(state, keys="credentials", passphrase="").folder
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    for keys in ("credentials", str(tmp_path / "nothing"), str(state / ".." / "federation")):
        with pytest.raises(SettingError):
            choose_place(state, keys=keys, passphrase="")


def test_a_passphrase_on_the_command_line_is_not_repeated(tmp_path: Path) -> None:
    """Other users see a command line: it is refused, and kept out of the log."""
    with pytest.raises(SettingError) as refused:
        read_passphrase("correct horse battery staple")
    assert "horse" not in str(refused.value)
    short = tmp_path / "short"
    short.write_bytes(b"1234\n")
    short.chmod(0o600)
    for source in (str(short), "ask"):
        with pytest.raises(SettingError):
            read_passphrase(source)


def test_keys_that_others_can_reach_are_refused(tmp_path: Path, now: datetime) -> None:
    """Each file and each folder, at start: not only those that are read first."""
    begin(tmp_path, now)
    folder = tmp_path / "federation"
    (folder / "cards").mkdir(mode=0o700)
    check_key_files(folder)
    check_key_files(tmp_path / "not there")
    for path, mode in ((folder / SEALING_FILE, 0o640), (folder / "cards", 0o755), (folder, 0o750)):
        kept = path.stat().st_mode & 0o777
        path.chmod(mode)
        with pytest.raises(IdentityError, match="chmod"):
            check_key_files(folder)
        path.chmod(kept)
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(IdentityError, match="link"):
        check_key_files(folder)
