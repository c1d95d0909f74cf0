"""What the doctor says of a site's folder."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from pfl_deploy.doctor import sites
from pfl_deploy.doctor.result import Check

DAY = timedelta(days=1)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site's folder with keys and no certificate."""
    folder = tmp_path / "f" / "a"
    (folder / "keys").mkdir(parents=True)
    return folder


def look(site: Path) -> list[Check]:
    """Every result but those that are well."""
    return [check for check in sites.examine(site.parents[1]) if check.level != "ok"]


def certify(site: Path, patch: pytest.MonkeyPatch, *, begins: timedelta, ends: timedelta) -> None:
    """A certificate that begins and ends so long from now."""
    (site / "keys" / "site.pem").touch()
    now = datetime.now(UTC)
    read = SimpleNamespace(not_valid_before_utc=now + begins, not_valid_after_utc=now + ends)
    patch.setattr(sites, "load_certificates", lambda pem, where: [read])


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
    (only,) = sites.examine(tmp_path / "nowhere")
    assert "ok" == only.level
    assert only.words.startswith("none has joined")


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
    (run / "generations" / "g1").touch()
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
