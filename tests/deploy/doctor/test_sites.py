"""What the doctor says of a site's folder."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save

from pfl_common.identity import Authority, Keyring
from pfl_deploy.doctor import sites
from pfl_deploy.doctor.result import Check

DAY = timedelta(days=1)
TENSORS = save({"w": np.zeros(3, dtype=np.float32)})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site's folder with keys and no certificate."""
    folder = tmp_path / "f" / "a"
    (folder / "keys").mkdir(parents=True, mode=0o700)
    return folder


def look(site: Path) -> list[Check]:
    """Every result but those that are well."""
    return [check for check in sites.examine(site.parents[1]) if check.level != "ok"]


def certify(site: Path, patch: pytest.MonkeyPatch, *, begins: timedelta, ends: timedelta) -> None:
    """A certificate that begins and ends so long from now."""
    (site / "keys" / "site.pem").touch(mode=0o600)
    now = datetime.now(UTC)
    read = SimpleNamespace(not_valid_before_utc=now + begins, not_valid_after_utc=now + ends)
    patch.setattr(sites, "load_certificates", lambda pem, where: [read])
    patch.setattr(sites, "federation_of", lambda authority: site.parent.name)


@pytest.mark.parametrize(
    ("begins", "ends", "level", "code", "words"),
    [
        (-DAY, 5.5 * DAY, "ok", 0, "5 days"),
        (-DAY, 4.5 * DAY, "warning", 0, "4 days"),
        (-9 * DAY, -DAY, "error", 2, "ended on"),
        (DAY, 9 * DAY, "error", 75, "begins at"),
    ],
)
def test_the_life_of_a_certificate(  # a row of the table
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    begins: timedelta,
    ends: timedelta,
    level: str,
    code: int,
    words: str,
) -> None:
    """Good for five days, soon over, over, and not begun: then this machine's clock is wrong."""
    certify(site, monkeypatch, begins=begins, ends=ends)
    (found,) = [check for check in sites.examine(site.parents[1]) if words in check.words]
    assert (level, code) == (found.level, found.code if level == "error" else 0)


def test_no_certificate_yet_and_nobody_at_all(site: Path, tmp_path: Path) -> None:
    """A site that is about to enrol is a warning; a machine without sites is well."""
    assert ["has keys and no certificate yet"] == [check.words for check in look(site)]
    first, *policy = sites.examine(tmp_path / "nowhere")
    assert {"ok"} == {check.level for check in (first, *policy)}
    assert first.words.startswith("none has joined")
    assert {"sites, policy"} == {check.about for check in policy}


def test_a_data_folder_that_is_not_there(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was not mounted."""
    certify(site, monkeypatch, begins=-DAY, ends=99 * DAY)
    (site / "data.txt").write_text(str(site / "keys"))
    assert [] == look(site)
    (site / "data.txt").write_text("/nowhere/at/all")
    assert ["its data folder is not there: /nowhere/at/all"] == [check.words for check in look(site)]


@pytest.mark.parametrize(
    ("pointer", "words"),
    [
        ({"generations": [{"file": "g1"}]}, ""),
        ({"generations": [{"file": "g1"}, {"file": "g2"}]}, "the vault names g2, which is not there"),
        ({"generations": ["g1"]}, "is damaged"),
        ({}, "is damaged"),
    ],
)
def test_the_files_a_vault_names(
    site: Path, monkeypatch: pytest.MonkeyPatch, pointer: dict[str, object], words: str
) -> None:
    """One that is gone, and a pointer that names none, are errors of the state: 4."""
    certify(site, monkeypatch, begins=-DAY, ends=99 * DAY)
    run = site / "runs" / "r"
    (run / "generations").mkdir(parents=True)
    (run / "generations" / "g1").write_bytes(TENSORS)
    assert [] == look(site)
    (run / "vault.json").write_text(json.dumps(pointer))
    found = look(site)
    assert ([4] if words else []) == [check.code for check in found]
    assert all(words in check.words and check.about == "site a, run r" for check in found)


def test_who_holds_a_lock(tmp_path: Path) -> None:
    """No file, a file that nobody holds, one held by this process."""
    lock = tmp_path / "site.lock"
    assert sites.held_by(lock) is None
    with lock.open("w") as file:
        assert sites.held_by(lock) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        assert sites.held_by(lock) in (os.getpid(), 0)


def enrol(folder: Path, *, federation: Path) -> str:
    """A site's folder with keys of a real federation; gives the federation's name."""
    authority, now = Authority.open_or_create(federation, now=datetime.now(UTC)), datetime.now(UTC)
    folder.mkdir(parents=True, mode=0o700)
    keyring = Keyring.open(folder / "keys")
    keyring.store(authority.sign_site(keyring.csr("a"), "a", now=now), authority.ca_pem)
    return authority.federation_id


def test_keys_of_another_federation(tmp_path: Path) -> None:
    """A folder that was moved there is told where it belongs; in its own it is well."""
    name = enrol(tmp_path / "moved" / "a", federation=tmp_path / "authority")
    (found,) = look(tmp_path / "moved" / "a")
    assert ("error", 4) == (found.level, found.code)
    assert name in found.words
    assert str(tmp_path / name / "a") in found.advice
    (tmp_path / "moved").rename(tmp_path / name)
    assert [] == look(tmp_path / name / "a")


@pytest.mark.parametrize("open_to_all", ["keys", "keys/site.key"])
def test_keys_that_others_can_reach(tmp_path: Path, open_to_all: str) -> None:
    """The folder, or one file in it: with the command that closes it again."""
    name = enrol(tmp_path / "new" / "a", federation=tmp_path / "authority")
    site = (tmp_path / "new").rename(tmp_path / name) / "a"
    (site / open_to_all).chmod(0o755)
    (found,) = look(site)
    assert "error" == found.level
    assert str(site / open_to_all) in found.words
    assert "chmod" in found.advice


def test_a_state_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may belong to another user since a start with sudo."""
    name = enrol(tmp_path / "new" / "a", federation=tmp_path / "authority")
    site = (tmp_path / "new").rename(tmp_path / name) / "a"
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    (found,) = look(site)
    assert ("error", 4) == (found.level, found.code)
    assert "may not write" in found.words


@pytest.mark.parametrize(
    ("content", "owner", "words"),
    [
        (TENSORS, {"run": "r", "site": "a"}, ""),
        (TENSORS[:-1], {"run": "r", "site": "a"}, "g1, which is damaged"),
        (b"", {"run": "r", "site": "a"}, "g1, which is damaged"),
        (bytes(40), {"run": "r", "site": "a"}, "g1, which is damaged"),
        (TENSORS, {"run": "other", "site": "a"}, "belongs to run other"),
        (TENSORS, {"run": "r", "site": "hospital_b"}, "belongs to site hospital_b"),
    ],
)
def test_the_vault_of_another_and_a_torn_one(
    site: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, owner: dict[str, str], words: str
) -> None:
    """A file shorter than it says, and a folder of another run or site."""
    certify(site, monkeypatch, begins=-DAY, ends=99 * DAY)
    run = site / "runs" / "r"
    (run / "generations").mkdir(parents=True)
    (run / "generations" / "g1").write_bytes(content)
    (run / "vault.json").write_text(json.dumps({"generations": [{"file": "g1"}], "owner": owner}))
    found = look(site)
    assert ([4] if words else []) == [check.code for check in found]
    assert all(words in check.words and check.advice for check in found)


def test_the_trainers_of_a_daemon(tmp_path: Path) -> None:
    """As the system lists its children; another program that it started is none."""
    for process, command in ((7, b"python\0-m\0pfl_client.trainer\0ipc"), (8, b"ls\0-l")):
        (tmp_path / str(process)).mkdir()
        (tmp_path / str(process) / "cmdline").write_bytes(command)
    task = tmp_path / "5" / "task" / "5"
    task.mkdir(parents=True)
    (task / "children").write_text("7 8 ")
    assert [7] == sites.list_trainers(5, tmp_path)
    assert [] == sites.list_trainers(6, tmp_path)
