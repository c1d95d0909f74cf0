"""A comparison's charts: two files each, in which every contestant has its place, twice the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pfl_deploy.comparison import charts
from pfl_deploy.comparison.outcome import Outcome
from tests.deploy.comparison.given import PLAN, Played, by_rule, write_plan

THIRD = '[contestants."costs $5"]\nmethod = "fedavg"\nset = { lr = 0.3, momentum = 0.25 }\n'


def rule(server: Mapping[str, Any]) -> Outcome:
    """As by rule, with shifted test data; a momentum does not train."""
    if "momentum" in server["set"]:
        return Outcome(failed="training diverged")
    plain = by_rule(server)
    return Outcome({**plain.accuracy, "shifted": plain.accuracy["test"]}, plain.curve)


def test_charts_as_png_and_svg(tmp_path: Path, data: Path) -> None:
    """Accuracies and differences of both test parts, and curves; a contestant that failed keeps its row."""
    found = Played(write_plan(tmp_path, PLAN + THIRD), data, rule).found
    made = charts.draw(found, tmp_path)
    names = ["accuracy-test", "differences-test", "accuracy-shifted", "differences-shifted", "curves"]
    assert [f"{name}.{kind}" for name in names for kind in ("png", "svg")] == [path.name for path in made]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in made if path.suffix == ".png")
    drawn = {path.stem: path.read_text() for path in made if path.suffix == ".svg"}
    for name in names[:4]:
        assert all(f">{who}<" in drawn[name] for who in ("alone", "together", "costs $5", "failed")), name
    assert ">failed<" not in drawn["curves"]
    assert "costs" not in drawn["curves"]
    again = charts.draw(found, tmp_path)
    assert drawn == {path.stem: path.read_text() for path in again if path.suffix == ".svg"}


def test_what_cannot_be_compared_is_not_drawn_as_a_difference(tmp_path: Path, data: Path) -> None:
    """It keeps its row, with the reason's word."""
    text = PLAN.replace('method = "fedavg"', 'method = "fedavg"\nset = { momentum = 0.25 }')
    found = Played(write_plan(tmp_path, text), data).found
    (path,) = (path for path in charts.draw(found, tmp_path) if path.name == "differences-test.svg")
    assert ">not comparable<" in path.read_text()


@pytest.mark.parametrize(("seeds", "lines"), [("[0]", 0), ("[0, 1, 2]", 1)])
def test_an_interval_needs_seeds(tmp_path: Path, data: Path, seeds: str, lines: int) -> None:
    """A single seed is a point."""
    text = PLAN.replace("[0, 1]", seeds).partition("[contestants.together]")[0]
    found = Played(write_plan(tmp_path, text), data).found
    figure = charts._accuracy(found, "test")
    drawn = [
        line for line in figure.axes[0].lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2
    ]
    assert lines == len([line for line in drawn if line.get_marker() == "None"])
