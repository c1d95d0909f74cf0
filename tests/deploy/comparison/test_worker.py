"""A run in a process of its own: what came of it is told, and what a person can mend ends the comparison in words."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from pfl_common.errors import DataError, RunFailed
from pfl_deploy.comparison import worker

Seen = TypeVar("Seen")
SERVER = {"method": "fedavg", "rounds": 1, "seed": 0, "backbone": "mlp", "set": {}}


def test_a_run_that_fails_is_an_outcome(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the end of the comparison: why it failed is told, and that it would fail so again."""

    def simulate(*words: object, **named: object) -> None:
        raise RunFailed("round 1: training diverged")

    monkeypatch.setattr(worker, "simulate", simulate)
    outcome = worker.run_request({"server": SERVER, "data": str(data)})
    assert ("round 1: training diverged", "training diverged", True) == (
        outcome.failed,
        outcome.reason,
        outcome.lasting,
    )


def test_a_process_that_was_killed_is_tried_again_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine had no memory left then; it may have some tomorrow."""
    killed = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(worker.subprocess, "run", lambda *words, **named: killed)
    outcome = worker.play({}, "together")
    for fact in ("SIGKILL", "memory"):
        assert fact in outcome.failed
    assert not outcome.lasting


def test_a_fault_of_ours_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the process said, and whose run it was."""
    broken = subprocess.CompletedProcess([], 1, "", "Traceback: ...")
    monkeypatch.setattr(worker.subprocess, "run", lambda *words, **named: broken)
    with pytest.raises(RunFailed, match="together: Traceback"):
        worker.play({}, "together")


def test_what_a_person_can_mend(tmp_path: Path) -> None:
    """Its words and its exit code are those of a single run, with the contestant before them."""
    with pytest.raises(DataError) as caught:
        worker.play({"server": SERVER, "data": str(tmp_path / "nix")}, "together")
    assert caught.value.seen.startswith(f"together: {tmp_path / 'nix'} ")
    assert "one folder per site" in caught.value.expected


@pytest.mark.parametrize(("common", "quorum"), [({}, 1.0), ({"quorum": 0.5}, 0.5)])
def test_every_site_counts_unless_told(common: dict[str, float], quorum: float) -> None:
    """A busy machine must not change who is counted; a comparison that wants to lose sites says so."""
    assert quorum == worker.run_settings({"method": "fedavg", **common})["quorum"]


@pytest.mark.parametrize(("common", "share"), [({}, 0.0), ({"validation": 0.1}, 0.1)])
def test_a_comparison_trains_on_all_samples_unless_it_says_otherwise(
    common: dict[str, object], share: float
) -> None:
    """As the papers' methods do; what it holds back for choosing is another matter."""
    assert share == worker.run_settings({"method": "fedavg", **common})["validation"]


def test_a_real_run_that_runs_away(data: Path) -> None:
    """Within three attempts it is an outcome with its reason, which would be the same another time."""
    outcome = worker.play(
        {"server": {**SERVER, "set": {"lr": 1e6, "batch": 4, "epochs": 4}}, "data": str(data)}, "together"
    )
    assert ("training diverged", True, {}) == (outcome.reason, outcome.lasting, outcome.accuracy)


def test_a_run_that_only_chooses_reads_no_test_data(data: Path) -> None:
    """It tells of validation samples alone, and they say the same as in a run that measures everything."""
    asked = {"server": SERVER, "data": str(data), "hold_out": 0.25}
    seeing, blind = (worker.run_request({**asked, "blind": word}) for word in (False, True))
    assert {"validation", "test"} == seeing.accuracy.keys()
    assert {"validation": seeing.accuracy["validation"]} == blind.accuracy


def test_a_run_ends_with_its_comparison(data: Path) -> None:
    """Killed, it leaves no process at work, and none of the folders that such a run has in memory."""
    request = {"server": {**SERVER, "rounds": 5000}, "data": str(data)}
    words = f"from pfl_deploy.comparison.worker import play; play({request!r}, 'x')"
    comparison = subprocess.Popen([sys.executable, "-c", words])
    try:
        child = wait_for(lambda: Path(f"/proc/{comparison.pid}/task/{comparison.pid}/children").read_text())
        ended = os.pidfd_open(int(child))
        places = [Path("/dev/shm"), Path(tempfile.gettempdir())]
        wait_for(lambda: [found for place in places for found in place.glob(f"pfl-compare-{int(child)}-*/*")])
    finally:
        comparison.kill()
        comparison.wait()
    assert [ended] == select.select([ended], [], [], 60)[0]
    os.close(ended)
    assert [] == [found for place in places for found in place.glob(f"pfl-compare-{int(child)}-*")]


def wait_for(look: Callable[[], Seen]) -> Seen:
    """What can be seen, as soon as there is anything."""
    deadline = time.monotonic() + 60
    while not (seen := look()):
        assert time.monotonic() < deadline
        # Not a synchronisation: the loop waits for the event and asserts on its own deadline.
        threading.Event().wait(0.02)
    return seen
