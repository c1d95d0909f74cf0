"""The operator's decisions as they are typed: one call each, told in words or as JSON."""

from __future__ import annotations

import json

import pytest

from pfl_client.connection.operator_link import Rotation
from pfl_deploy import cli
from pfl_deploy.operator import membership
from tests.words import Spoken, speak


def run(*words: str) -> Spoken:
    """What `pfl` says to these words."""
    return speak(cli.main, *words)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What reaches the coordinator."""
    calls: list[object] = []

    def decide(decision: str, name: str, *, server: str | None, fingerprint: str = "") -> tuple[str, str]:
        calls.append((decision, name, server, fingerprint))
        return f"{name} is it", "0123 4567" if decision in ("Approve", "Deny") else ""

    def rotate(**words: object) -> Rotation:
        calls.append(words)
        return Rotation("it takes over", ("hospital_b",))

    monkeypatch.setattr(membership, "decide", decide)
    monkeypatch.setattr(membership, "rotate", rotate)
    return calls


@pytest.mark.parametrize("command", ["remove", "revoke", "approve", "deny"])
def test_a_decision(command: str, told: list[object]) -> None:
    """The fingerprint is shown where keys were looked at, and passed on where one was read out."""
    asked = ("--fingerprint", "0123 4567") if command in ("approve", "deny") else ()
    said = run(command, "hospital_a", "--server", "abcd", *asked)
    assert (0, True, bool(asked)) == (said.code, "hospital_a is it" in said.out, "0123 4567" in said.out)
    assert "hospital_a" == json.loads(run(command, "hospital_a", "--json").out)["site"]
    first = command.capitalize(), "hospital_a", "abcd", "0123 4567" if asked else ""
    assert [first, (command.capitalize(), "hospital_a", None, "")] == told


def test_a_new_authority(told: list[object]) -> None:
    """Who lacks it is named."""
    assert "hospital_b" in run("rotate-ca", "--finish", "--anyway").out
    assert ["hospital_b"] == json.loads(run("rotate-ca", "--until", "2050-01-01", "--json").out)["lacking"]
    assert [True, "2050-01-01"] == [told[0]["anyway"], told[1]["until"]]


def test_the_difference_is_told_where_it_is_looked_for() -> None:
    """Each of the two names the other, and says how a site comes back."""
    for command, other, back in (("remove", "pfl revoke", "pfl invite"), ("revoke", "pfl remove", "--again")):
        said = run(command, "--help").text
        assert other in said
        assert back in said
