"""What the doctor says of a coordinator's address that it cannot reach, or that another answers at."""

from __future__ import annotations

import socket
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pfl_common.errors import SettingError
from pfl_common.identity import Addresses, Authority, Found, Invitation, Ledger, write_join_file
from pfl_deploy.doctor import reaching
from pfl_deploy.doctor.result import Check

PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a machine without one."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def reach(patch: pytest.MonkeyPatch, end: Exception | str, address: str = "10.0.0.9:4433") -> Check:
    """The one result where the handshake ends so."""

    def shake(address: str, ca_pem: bytes) -> str:
        if isinstance(end, Exception):
            raise end
        return end

    patch.setattr(reaching, "_shake_hands", shake)
    (found,) = reaching._reach("port", address, b"")
    return found


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (TimeoutError(110, "timed out"), "no answer in time"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (socket.gaierror("no such name"), "no such name"),
    ],
)
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch, end: Exception, why: str) -> None:
    """A thing to try again: 75. The system's word for it is told."""
    found = reach(monkeypatch, end)
    assert ("error", 75) == (found.level, found.code)
    assert ["10.0.0.9:4433", why] == [fact for fact in ("10.0.0.9:4433", why) if fact in found.words]


def test_behind_a_proxy_it_may_work_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not at an address of this machine, nor at one that the proxy is not used for."""
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    refused = ConnectionRefusedError(111, "Connection refused")
    assert "warning" == reach(monkeypatch, refused).level
    assert "error" == reach(monkeypatch, refused, "127.0.0.1:4433").level
    monkeypatch.setenv("no_proxy", "10.0.0.9")
    assert "error" == reach(monkeypatch, refused).level


def test_another_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate of somebody else is fatal, unless a wrong clock explains it."""
    foreign = ssl.SSLCertVerificationError(1, "foreign")
    foreign.verify_message = "unable to get local issuer certificate"
    monkeypatch.setattr(reaching.clock_check, "explain", lambda *words, now: None)
    found = reach(monkeypatch, foreign)
    assert ("error", 2) == (found.level, found.code)
    assert "unable to get local issuer" in found.words
    clock = SettingError("this clock is a year late", advice="set it")
    monkeypatch.setattr(reaching.clock_check, "explain", lambda *words, now: clock)
    assert ("this clock is a year late", "set it") == (lambda check: (check.words, check.advice))(
        reach(monkeypatch, foreign)
    )


def test_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the version of TLS it speaks."""
    found = reach(monkeypatch, "TLSv1.3")
    assert ("ok", "10.0.0.9:4433 answers, TLSv1.3") == (found.level, found.words)


@pytest.mark.parametrize(("days", "told"), [(13.5, 1), (14.5, 0), (-1.0, 1)])
def test_the_end_of_an_authority(monkeypatch: pytest.MonkeyPatch, days: float, told: int) -> None:
    """Two weeks before it, and after it."""
    end: Any = SimpleNamespace(not_valid_after_utc=datetime.now(UTC) + timedelta(days=days))
    monkeypatch.setattr(reaching, "load_certificates", lambda pem, where: [end])
    assert told == len(list(reaching._end_of_authority("coordinator f", b"")))


@pytest.fixture
def invitation(tmp_path: Path) -> Invitation:
    """One of a federation that began today."""
    authority = Authority.open_or_create(tmp_path / "federation", now=datetime.now(UTC))
    ledger = Ledger(tmp_path / "ledger", authority.ca_pem)
    return ledger.invite("hospital_a", datetime.now(UTC), addresses=Addresses("10.0.0.9:1", "10.0.0.9:2"))


def examine(invitation: Invitation, file: Path, patch: pytest.MonkeyPatch) -> list[Check]:
    """Every finding of an invitation but those that are well; both ports answer."""
    patch.setattr(reaching, "_shake_hands", lambda address, ca_pem: "TLSv1.3")
    write_join_file(invitation, file)
    return [check for check in reaching.examine_invitation(file) if check.level != "ok"]


def test_an_invitation_from_the_future(
    invitation: Invitation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its federation has not begun by this machine's clock: the clock is wrong."""
    late = Authority.open_or_create(tmp_path / "late", now=datetime.now(UTC) + timedelta(days=9))
    ahead = replace(invitation, ca_pem=late.ca_pem, federation_id=late.federation_id)
    (found,) = examine(ahead, tmp_path / "a.join", monkeypatch)
    assert ("error", 75) == (found.level, found.code)
    assert "date -u" in found.advice


@pytest.mark.parametrize(("here", "told"), [("10.0.0.9:1", 1), ("10.0.0.9:7", 0)])
def test_an_invitation_of_another_federation(
    invitation: Invitation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, told: int
) -> None:
    """At its address a coordinator of this machine answers, which is of another federation."""
    found = Found("other", Addresses(here, "10.0.0.9:8"), b"", pid=1, state_folder=tmp_path, secret=b"")
    monkeypatch.setattr(reaching.discovery, "list_running", lambda: [found])
    checks = examine(invitation, tmp_path / "a.join", monkeypatch)
    assert [("error", 2)] * told == [(check.level, check.code) for check in checks]
    assert all("other" in check.words and "pfl invite hospital_a" in check.advice for check in checks)
