"""Two machines whose clocks differ: that is what is said, not that the certificate is a stranger's."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_client.connection import clock_check
from pfl_common.errors import Unavailable
from pfl_common.identity import Authority

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """A federation whose coordinator was started at noon."""
    one = Authority.open_or_create(tmp_path / "one", now=NOW)
    shown = one.server_certificate(["127.0.0.1"], now=NOW).certificate_pem.decode()
    monkeypatch.setattr(ssl, "get_server_certificate", lambda address, timeout: shown)
    return one


@pytest.mark.parametrize(
    ("offset", "phrases"),
    [
        (timedelta(days=-1), ("2026-05-03 12:00", "2026-05-04 12:00 UTC already when it was started")),
        (timedelta(minutes=-6), ("2026-05-04 11:54", "2026-05-04 12:00 UTC already")),
        (timedelta(days=800), ("2028-07-12 12:00", "the coordinator's certificate ended at 2027-05-04")),
    ],
)
def test_both_clocks_are_named(authority: Authority, offset: timedelta, phrases: tuple[str, ...]) -> None:
    """Ours, theirs, and which to look at."""
    explained = clock_check.explain("127.0.0.1:1", authority.ca_pem, now=NOW + offset)
    assert isinstance(explained, Unavailable), "a clock may be set by itself"
    for phrase in (*phrases, "to within 5 minutes", "set the clock that is wrong"):
        assert phrase in str(explained)


def test_clocks_that_agree_explain_nothing(authority: Authority) -> None:
    """A day ahead is nothing a certificate of a year minds."""
    for offset in (timedelta(), timedelta(days=1)):
        assert None is clock_check.explain("127.0.0.1:1", authority.ca_pem, now=NOW + offset)


def test_a_stranger_says_nothing_of_clocks(authority: Authority, tmp_path: Path) -> None:
    """A server that another authority signed may have any clock it likes; and so may nobody at all."""
    other = Authority.open_or_create(tmp_path / "other", now=NOW)
    assert None is clock_check.explain("127.0.0.1:1", other.ca_pem, now=NOW - timedelta(days=1))


def test_nobody_there(tmp_path: Path) -> None:
    """A port that is closed explains nothing."""
    one = Authority.open_or_create(tmp_path / "one", now=NOW)
    assert None is clock_check.explain("127.0.0.1:1", one.ca_pem, now=NOW - timedelta(days=1))
