"""A path on the command line is recognised, and looked at before anything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pfl_common.identity import Addresses, Authority, Keyring, Ledger, write_join_file
from pfl_deploy.cli import main
from pfl_deploy.doctor import reaching
from tests.deploy.support.processes import write_site
from tests.words import speak


def examine(thing: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the findings."""
    told = json.loads(speak(main, "doctor", "--json", thing).out)
    return told["exit_code"], told["checks"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No coordinator and no site of this user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))


def make(kind: str, folder: Path) -> Path:
    """A sound thing of this kind."""
    if kind == "data":
        return write_site(folder / "hospital_a", samples=12)
    authority = Authority.open_or_create(folder / "pfl-state" / "federation", now=datetime.now(UTC))
    if kind == "coordinator":
        return folder / "pfl-state"
    if kind == "invitation":
        ledger = Ledger(folder / "ledger", authority.ca_pem)
        invitation = ledger.invite("hospital_b", datetime.now(UTC), addresses=Addresses("a:1", "a:2"))
        write_join_file(invitation, folder / "b.join")
        return folder / "b.join"
    site = folder / "sites" / authority.federation_id / "hospital_c"
    site.mkdir(parents=True, mode=0o700)
    keyring = Keyring.open(site / "keys")
    request = keyring.csr("hospital_c")
    keyring.store(authority.sign_site(request, "hospital_c", now=datetime.now(UTC)), authority.ca_pem)
    return site if kind == "site" else folder / "sites"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("data", "the site would be called hospital_a"),
        ("coordinator", "is a coordinator's state folder"),
        ("invitation", "for the site hospital_b"),
        ("site", "keys are good until"),
        ("sites", "keys are good until"),
    ],
)
def test_whatever_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, words: str) -> None:
    """It says what it is, and that it is well; the machine is looked at too."""
    monkeypatch.setattr(reaching, "_shake_hands", lambda address, ca_pem: "TLSv1.3")
    code, checks = examine(make(kind, tmp_path))
    assert 0 == code, checks
    said = [check["words"] for check in checks]
    place = next(number for number, one in enumerate(said) if words in one)
    assert place < [check["about"] for check in checks].index("Python")


def test_nothing_at_all(tmp_path: Path) -> None:
    """A path that leads nowhere is an error of who typed it."""
    code, checks = examine(tmp_path / "nowhere")
    assert (2, "is not there") == (code, checks[0]["words"])
    assert checks[0]["advice"]
