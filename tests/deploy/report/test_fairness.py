"""The page's table of sites, from numbers that stand in for runs."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from pfl_deploy.report import fairness
from pfl_deploy.report.sources.evaluations import Point
from pfl_server.store.comparable import Differences


def told(name: str, mean: float, finals: dict[str, float], hindering: tuple[str, ...] = ()) -> Any:
    """A run with this mean at its end; its worst tenth is not known."""
    end = Point(4, 2, mean, 0.5, 0.1, float("nan"), 0.2, 1.0)
    best = Point(3, 2, mean + 0.05, 0.5, 0.1, 0.3, 0.2, 1.0)
    measured = SimpleNamespace(final_of=lambda part: end if part == "test" else None, best=best)
    record = SimpleNamespace(spec=SimpleNamespace(id=f"{name}-1"))
    return SimpleNamespace(
        name=name,
        kind=name,
        measured=measured,
        record=record,
        finals=finals,
        finals_of=lambda part: finals if part == "test" else {},
        reading=SimpleNamespace(acc_average="macro"),
        differences=Differences(hindering),
    )


def page_of(patch: pytest.MonkeyPatch, *, hindering: tuple[str, ...] = ()) -> str:
    """A run of three sites, one of which training alone did not have."""
    run = told("fedavg", 0.75, {"a": 0.9, "b": 0.6, "c": 0.5})
    alone = told("local", 0.7, {"a": 0.8, "b": 0.65}, hindering)
    facts: Any = SimpleNamespace(run=run, beside=[alone], all=[run, alone], find={"local": alone}.get)
    patch.setattr(fairness, "differ", lambda one, other: SimpleNamespace(hindering=hindering))
    gains = {site: run.finals[site] - alone.finals[site] for site in "ab"}
    patch.setattr(fairness, "site_gains", lambda facts: {} if hindering else gains)
    return fairness.tell_sites(facts, {})


def cells(*words: str) -> str:
    """A row of numbers behind its name."""
    return f"<td>{words[0]}</td>" + "".join(f'<td class="n">{word}</td>' for word in words[1:])


def test_each_run_at_its_end_and_at_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.75 is five points more than alone; what is not known is left empty, and alone has nothing beside itself."""
    page = page_of(monkeypatch)
    assert cells("fedavg", "75.00", "50.00", "10.00", "", "20.00", "2", "+5.00", "fedavg-1") in page
    assert cells("local", "70.00", "50.00", "10.00", "", "20.00", "2", "", "local-1") in page
    assert (
        cells("fedavg, best: round 3", "80.00", "50.00", "10.00", "30.00", "20.00", "2", "+5.00", "fedavg-1")
        in page
    )
    assert "shifted" not in page


def test_each_known_site_and_what_it_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two gains; of the third nothing is known alone."""
    page = page_of(monkeypatch)
    assert re.search(r"training alone 1 of 2 sites.*-5\.0 points at b.*\+10\.0 at a", page)
    assert cells("a", "90.00", "80.00", "+10.00") in page
    assert cells("c", "50.00", "", "") in page


def test_runs_that_cannot_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason stands in place of the number."""
    page = page_of(monkeypatch, hindering=("other data", "other seed"))
    assert "not comparable: other data; other seed" in page
    assert "Against training alone" not in page
    assert cells("a", "90.00", "80.00", "not comparable") in page


def test_nothing_measured_is_no_section() -> None:
    """Before the first evaluation."""
    assert "" == fairness.tell_sites(SimpleNamespace(all=[]), {})
