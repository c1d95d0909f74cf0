"""The operator's commands, with a coordinator that answers whatever a test wants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import pytest

from pfl_common.errors import Refused
from pfl_common.spec import status_json
from pfl_common.spec.messages import RunStatus
from pfl_deploy.cli import main
from pfl_deploy.operator import commands
from tests.words import check_clear, speak

RUNNING = RunStatus("run-1", "fedavg", "running", 3, 9, 1, words="\x1b[2J é")


class Answering:
    """A line to a coordinator that tells this status."""

    def __init__(self, told: bytes | Exception) -> None:
        self.told, self.stopped = told, False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def status(self) -> bytes:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told

    async def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Answering:
    answering, found = Answering(status_json.write(RUNNING)), SimpleNamespace()
    monkeypatch.setattr(commands.discovery, "find", lambda server: found)
    monkeypatch.setattr(commands, "open_link", lambda found: answering)
    return answering


def test_as_json_it_is_what_the_page_reads(line: Answering) -> None:
    """Byte for byte, facts of a newer coordinator included."""
    newer = line.told = status_json.write(RUNNING).replace(b"{", b'{"moon":"full",', 1)
    assert newer.decode() + "\n" == speak(main, "status", "--json").out


def test_in_words(line: Answering) -> None:
    """The same facts, read; what a terminal would obey is a space."""
    shown = speak(main, "status").out.splitlines()
    assert ["run-1  fedavg  running  before round 1 of 9", "\\x1b[2J é"] == shown[:2]


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["stop"]], ids=" ".join)
@pytest.mark.parametrize(
    "told",
    [b"", b"\x1b[2J", b'{"run": 1}', b"\xff", Refused("too_large", "9 bytes in the status")],
    ids=["nothing", "no JSON", "another type", "no ASCII", "refused"],
)
def test_an_answer_that_is_no_status(line: Answering, told: Any, words: list[str]) -> None:
    """A coordinator of another release, or another program in its place: an error in words, and nothing is stopped."""
    line.told = told
    said = speak(main, *words)
    check_clear(said, 1 if isinstance(told, Refused) else 2)
    assert ("too_large" if isinstance(told, Refused) else "status cannot be read") in said.err
    assert not line.stopped


def test_stopping_a_run(line: Answering) -> None:
    """What comes of it is told by how the run stood."""
    assert "ends now" in " ".join(speak(main, "stop").out.split())
    assert line.stopped


@pytest.mark.parametrize("status", ["finished", "stopped", "failed"])
def test_a_run_that_is_over_is_not_stopped(line: Answering, status: str) -> None:
    """There is nothing to stop."""
    line.told = status_json.write(RunStatus("run-1", "fedavg", status, 9, 9, 1))
    said = speak(main, "stop")
    check_clear(said, 2)
    assert f"run run-1 is over ({status})" in " ".join(said.err.split())
    assert not line.stopped
