"""A federation and a site's keys, made anew for each test at one fixed moment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pfl_common.identity import Addresses, Authority, Invitation, Keyring, Ledger


@pytest.fixture
def now() -> datetime:
    """The moment at which everything in a test is made."""
    return datetime(2030, 5, 17, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path, now: datetime) -> Authority:
    """A new federation's authority."""
    return Authority.open_or_create(tmp_path / "federation", now=now)


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    """A site that has not joined yet."""
    return Keyring.open(tmp_path / "site")


@pytest.fixture
def ledger(tmp_path: Path, authority: Authority) -> Ledger:
    """The coordinator's record of invitations, still empty."""
    return Ledger(tmp_path / "invitations", authority.ca_pem)


@pytest.fixture
def addresses() -> Addresses:
    """Where the coordinator of a test would be reached."""
    return Addresses(control="coordinator.example.org:7301", enrolment="coordinator.example.org:7302")


@pytest.fixture
def invitation(ledger: Ledger, addresses: Addresses, now: datetime) -> Invitation:
    """An invitation for hospital_a, just written."""
    return ledger.invite("hospital_a", now, addresses=addresses)
