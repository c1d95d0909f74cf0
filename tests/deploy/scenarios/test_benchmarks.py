"""The benchmarks can be run: every row of their quick form has numbers. What they are is not promised here."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import large_data, single_models
from tests.house.skeleton import TOP

ROWS = {"B1", "B2", "B3", "B4", "B6", "B7", "B8", "B9", "B11"}


def measure(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command; if it takes too long, let it end its programs before it ends itself."""
    command = [sys.executable, "-m", "tests.benchmarks.transport", *map(str, words)]
    with subprocess.Popen(
        command, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            process.terminate()
            said, _ = process.communicate(timeout=25)
    return subprocess.CompletedProcess(command, process.returncode, said)


def numbers(value: Any) -> list[float]:
    """All numbers of a row, however deep; truth values are none."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_every_row_has_numbers(tmp_path: Path) -> None:
    """Real processes, a killed site, a dozen light ones and the yardstick, all tiny."""
    out = tmp_path / "measured.json"
    ended = measure("--quick", "--out", out, "--folder", tmp_path)
    assert 0 == ended.returncode, ended.stdout
    measured = json.loads(out.read_text())
    assert {} == measured["failed"]
    assert ROWS == {row["budget"] for row in measured["rows"]}
    for row in measured["rows"]:
        assert row["measured"] > 0, row
        assert row["ratio"] > 0, row
        assert all(math.isfinite(number) for number in numbers(row)), row
    killed = next(row for row in measured["rows"] if row["budget"] == "B8")
    assert (1, 1) == (killed["details"]["counted"], killed["details"]["lost"])
    # Nothing is left behind but the file.
    assert [out] == list(tmp_path.iterdir())


def test_a_wrong_row_names_the_right_ones() -> None:
    """What cannot be measured is said before anything is started."""
    ended = measure("B10")
    assert 2 == ended.returncode
    assert "expected B1, B2" in ended.stdout


def test_a_scrape_costs_something(tmp_path: Path) -> None:
    """Both programs are asked, and answer; what it costs is not promised here."""
    command = [sys.executable, "-m", "tests.benchmarks.scraping", "--scrapes", "20"]
    ended = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == ended.returncode, ended.stderr
    costs = {cost["program"]: cost for cost in json.loads(ended.stdout)}
    assert {"pfl-server", "pfl-client"} == costs.keys()
    assert all(cost["bytes"] > 1000 and cost["answer_milliseconds"] > 0 for cost in costs.values())


@pytest.mark.parametrize("name", sorted(single_models.SETTINGS))
def test_single_models_are_measured(name: str) -> None:
    """Every step of every method has a time and, but for one that reads nothing, memory."""
    steps = single_models.measure(name, 3, "cnn")
    assert 5 == len(steps)
    assert all(step.method == name and step.seconds >= 0 for step in steps)
    closing = next(step for step in steps if step.step == "close a round of all")
    assert closing.peak_mb > 0


def test_large_data_are_measured(tmp_path: Path) -> None:
    """Out of the cache and out of memory: the same updates. How long it takes is not promised here."""
    found = asyncio.run(large_data.measure(tmp_path, 1 << 30, samples=100, epochs=1, backbone="cnn"))
    assert found.equal
    assert found.ratio > 0
    assert all(seconds > 0 for seconds in found.open_seconds)
