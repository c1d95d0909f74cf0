"""A run in one process that ends early and keeps the best: what is held back, what is told; and it can be replayed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pfl_common.app.config import settle
from pfl_deploy.report.sources.coordinator import read_record, subject_of
from pfl_deploy.simulation.replay import replay
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import write_site
from tests.deploy.support.reported import report

WORDS = {"method": "fedper", "rounds": 9, "sites": 2, "backbone": "mlp", "quorum": 1.0, "keep": "best"}
STANDS_STILL = {"patience": 2, "set": {"lr": "1e-9"}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A site that is large enough to hold samples back, and one that is not."""
    data = tmp_path_factory.mktemp("data")
    return [write_site(data / "large", samples=80, seed=1), write_site(data / "small", samples=40, seed=2)]


@pytest.fixture(scope="module")
def ended(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A training that does not get anywhere, of nine rounds."""
    state = tmp_path_factory.mktemp("state")
    settings = settle(ServerSettings, {**WORDS, **STANDS_STILL, "state": state / "coordinator"}, what="test")
    return simulate(settings, folders, state / "sites")


def test_it_ends_early_and_says_so(ended: Result) -> None:
    """Two measurements later than the first one, which is of the first model."""
    record = read_record(ended.coordinator)
    assert ("finished", 3, 3) == (record.status, len(record.committed), subject_of(record).rounds)
    assert "after round 0" in record.words


def test_what_is_held_back_by_default(ended: Result) -> None:
    """Of the large site 12 of 80, four of each class; the small one keeps all, and so has no best model."""
    measured = {site: read_last(folder)["scores"] for site, folder in ended.sites.items()}
    assert (12, 40) == tuple(
        measured["large"][f"pre/{part}/combined"]["samples"] for part in ("validation", "test")
    )
    assert "pre/validation/combined" not in measured["small"]
    assert [True, False] == [
        (ended.sites[site] / "serving" / "best.safetensors").exists() for site in ("large", "small")
    ]


def test_the_report_tells_the_best_round_of_each_site(ended: Result, tmp_path: Path) -> None:
    """As the site's own history has it, in the file for programs and on the page."""
    best = read_last(ended.sites["large"])["best"]
    numbers, page = report(ended.coordinator, tmp_path, "--sites", ended.sites["large"].parents[2])
    assert {"large": best} == numbers["best_by_site"]
    assert 'id="best-rounds"' in page


def test_it_can_be_replayed(ended: Result, folders: list[Path], tmp_path: Path) -> None:
    """To the round that it ended after, and to the same bytes."""
    assert 3 == replay(ended.coordinator, folders, tmp_path / "again").round


def read_last(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The last line of a site's history."""
    found: dict[str, dict[str, dict[str, float]]] = json.loads(
        (folder / "history.jsonl").read_text().splitlines()[-1]
    )
    return found
