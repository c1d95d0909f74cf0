"""What the operator types about sites and the authority, before any coordinator is asked."""

from __future__ import annotations

import pytest

from pfl_common.errors import PflError, SettingError, UserError
from pfl_common.identity import discovery
from pfl_deploy.operator import membership


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No coordinator runs here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def rotate(**words: object) -> None:
    membership.rotate(**{"server": None, "finish": False, "anyway": False, "until": None} | words)


@pytest.mark.parametrize(
    "words",
    [
        {"finish": True, "until": "2050-01-01"},
        {"anyway": True},
        {"until": "soon"},
        {"until": "2001-01-01"},
    ],
)
def test_words_about_the_authority_that_cannot_be(words: dict[str, object]) -> None:
    """Each says what would be right."""
    with pytest.raises(SettingError):
        rotate(**words)


def test_without_a_coordinator() -> None:
    """It has the keys and does it: without it nothing is done, and it is said what to start."""
    for call in (
        lambda: rotate(until="2050-01-01"),
        lambda: membership.decide("Remove", "hospital_a", server=None),
    ):
        with pytest.raises(discovery.NoCoordinator):
            call()
    with pytest.raises(UserError):
        membership.decide("Remove", "Hospital A", server=None)
    assert issubclass(discovery.NoCoordinator, PflError)
