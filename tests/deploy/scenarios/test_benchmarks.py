"""The benchmarks can be run: every row of their quick form has numbers. What they are is not promised here."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pfl_server.run.memory_estimate import COPIES
from tests.benchmarks import large_data, single_models
from tests.benchmarks.growth import drawing, page
from tests.benchmarks.growth.drawing import Drawn
from tests.benchmarks.growth.line import Line
from tests.benchmarks.growth.play import Cost, full_plan
from tests.benchmarks.training import measuring
from tests.benchmarks.training.by_hand import BY_HAND
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


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedcac"])
def test_a_rehearsal_takes_what_is_said_of_it(method: str) -> None:
    """Two and a half times its model, as the kernel saw the memory of a process of its own."""
    words = [method, "--backbone", "torchvision:resnet18", "--side", "32"]
    command = [sys.executable, "-m", "tests.benchmarks.rehearsal", *words]
    ended = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == ended.returncode, ended.stderr
    found = json.loads(ended.stdout)
    # A model of 45 MB: what a process of its size takes anyhow is some hundredths of it.
    assert 2.0 < found["peak_models"] < COPIES + 0.25


SAME_ORDER = sorted(BY_HAND.keys() - {"fedpick", "fedfomo"})
"""Those whose loop by hand sees the same batches and noise if it is told the same orders."""


@pytest.mark.parametrize("method", SAME_ORDER)
def test_a_loop_by_hand_does_the_same_mathematics(method: str) -> None:
    """Told the same orders of samples, it ends at the same model: what is measured is the same work."""
    given = {"batch": 8, "lr": 0.01, **STRONG.get(method, {})}
    case = measuring.build(method, measuring.Network("cnn", 16, 32), **given)
    ours, twin = case.train(), copy.deepcopy(case.participant)
    epochs = itertools.count()

    def draw(samples: int) -> torch.Tensor:
        number = 0 if method == "ditto" else next(epochs)
        purpose = case.data.generator(measuring.TASK, "shuffle", number)
        return torch.randperm(samples, generator=purpose)

    BY_HAND[method](twin, replace(case.site, draw=draw))
    before, expected, seen = (measuring.values(model) for model in (case.participant, ours, twin))
    trained = [name for name in expected if not name.startswith(BESIDE.get(method, "?"))]
    moved, apart = (
        sum(float((expected[name] - other[name]).square().sum()) for name in trained)
        for other in (before, seen)
    )
    # Sums in another order are other roundings, which some layers make larger.
    assert 0 < moved
    assert apart < (0.001**2) * moved


STRONG = {"fedprox": {"mu": 1.0}, "fedamp": {"alpha_k": 1.0}, "fedphp": {"lambda": 0.5}}
"""Terms that are so small by default that a few steps do not show them."""
BESIDE = {"fedproto": "owned", "gpfl": ("condition", "table")}
"""What the product remembers beside the model, which is no training."""


def test_training_is_measured(tmp_path: Path) -> None:
    """A method with a network, tiny; how long it takes is not promised here."""
    out = tmp_path / "training.json"
    words = ["fedavg", "fedpick", "fedfomo", "--network", "cnn", "--quick", "--out", str(out)]
    command = [sys.executable, "-m", "tests.benchmarks.training", *words]
    ended = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == ended.returncode, ended.stderr
    assert ["fedavg", "fedpick", "fedfomo"] == [row["method"] for row in json.loads(out.read_text())["rows"]]
    assert all(row["ratio"] > 0 for row in json.loads(out.read_text())["rows"])


def test_a_line_is_fitted_with_what_it_leaves_over() -> None:
    """Points on a line leave nothing; one that lies above it is said to."""
    exact = Line.through([(1, 7), (10, 25), (100, 205)])
    assert pytest.approx((5, 2)) == (exact.fixed, exact.slope)
    assert pytest.approx((0, 0, 0), abs=1e-9) == exact.residuals
    assert Line.through([(1, 7), (10, 50), (100, 205)]).residuals[1] > 0.1


def test_growth_is_measured(tmp_path: Path) -> None:
    """A few real daemons, of which each round asks half: what it costs is not promised here."""
    out = tmp_path / "growth.json"
    words = ["--quick", "--part", "registered", "--out", str(out), "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "tests.benchmarks.growth", *words]
    ended = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=115, check=False)
    assert 0 == ended.returncode, ended.stderr
    (cost,) = json.loads(out.read_text())["costs"]["registered"]
    assert (6, 3) == (cost["registered"], cost["sites"])
    assert all(cost[name] > 0 for name in ("round_seconds", "cpu_seconds", "resident_bytes"))


@pytest.mark.parametrize(
    ("most", "room", "registered"),
    [(10_000, 4_888, [50, 200, 1_000, 4_800]), (1_000, 1 << 20, [50, 200, 1_000]), (10_000, 130, [50, 100])],
)
def test_no_more_sites_register_than_there_is_room_for(most: int, room: int, registered: list[int]) -> None:
    """Where a machine has few descriptors: each crowd once, and none that could never be here together."""
    plan = full_plan(most=most, room=room)
    assert registered == [workload.sites for workload in plan.registered]
    assert {50} == {workload.cohort for workload in plan.registered}


def test_rounds_write_no_list_of_all_sites(tmp_path: Path) -> None:
    """Ten thousand names are 150 kB: they are written once, and not with each round."""
    few, many = (drawing.draw(tmp_path / f"{n}.sqlite", n, rounds=30) for n in (50, 10_000))
    assert (50, 10_000) == (few.registered, many.registered)
    assert few.cpu_seconds > 0
    assert many.journal_bytes - few.journal_bytes < 150_000 / 20


def test_a_page_is_reckoned_from_a_kept_result(tmp_path: Path) -> None:
    """4 ms a site and 1 ms a MiB and site are 40 s of the coordinator for 10,000 sites, and 450 s more for 45 MiB."""
    line = {**Line.through([(1, 14), (10, 50)]).to_json()}
    slope = {**Line.through([(1, 6), (10, 15)]).to_json()}
    lines = {
        "sites": {"unit": "ms a site", "ours": line, "by_hand": line, "target": 4.0},
        "sizes": {"unit": "ms a MiB and site", "ours": slope, "by_hand": slope, "target": 1.7},
    }
    crowds = [
        Cost(50, 50, 100_000, 0.4, 0.1, 120_000_000).to_json(),
        Cost(50, 200, 100_000, 0.4, 0.2, 180_000_000).to_json(),
        Cost(50, 1_000, 100_000, 0.5, 0.25, 500_000_000).to_json(),
    ]
    costs = {"sites": [], "sizes": [], "registered": crowds}
    machine = {"cores": 2, "processor": "one", "date": "today", "load_before": 0.1}
    drawn = [Drawn(50, 0.0005, 2000.0).to_json(), Drawn(10_000, 0.0032, 6000.0).to_json()]
    result = {"quick": False, "machine": machine, "lines": lines, "costs": costs, "drawn": drawn}
    page.write(result, tmp_path / "growth.md")
    words = (tmp_path / "growth.md").read_text()
    # 944 GB over 10 Gbit/s are 755 s; 380 MB more for 950 sites more are 4 GB for 10,000.
    assert "| 45 MiB | 490 s | 245 s | 61 s | 15 s | 7,550 s | 755 s | 944 GB |" in words
    assert "| 1,000 | 50 | 0.50 s | 250 ms | 500 MB | 1.25× |" in words
    assert "0.40 MB for each line that is open, 4.1 GB" in words
    assert "0.5 ms of 50, 3.2 ms of 10,000." in words
    alone = {**result, "costs": {**costs, "registered": crowds[:1]}}
    for bad in ({**result, "quick": True}, {**result, "costs": {}}, alone, {**result, "drawn": []}):
        with pytest.raises(SystemExit):
            page.write(bad, tmp_path / "none.md")
    assert not (tmp_path / "none.md").exists()


def test_the_page_is_what_the_newest_kept_result_gives() -> None:
    """Written by its command alone: without a result there is no page."""
    assert page.PAGE.exists() == any(page.KEPT.glob("*.json"))
    if page.PAGE.exists():
        assert page.make(json.loads(page.find().read_text())) == page.PAGE.read_text()


def test_the_newest_result_is_found(tmp_path: Path) -> None:
    """By its name, a date; one that is named is taken; without any there are words."""
    with pytest.raises(SystemExit, match="there is no result"):
        page.find(kept=tmp_path)
    for name in ("2026-11-18", "2026-11-20", "2026-11-19"):
        (tmp_path / f"{name}.json").touch()
    assert "2026-11-20.json" == page.find(kept=tmp_path).name
    assert Path("other.json") == page.find("other.json", tmp_path)
