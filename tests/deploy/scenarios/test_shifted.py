"""A second test of samples that came about otherwise: shown beside the first, wherever accuracies are shown."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pfl_deploy.simulation.tables import show_sites
from tests.deploy.support.processes import write_site
from tests.deploy.support.reported import Page, pfl, report
from tests.words import Spoken, check_clear

SHIFTED = ("hospital_b", "hospital_c")


@dataclass(frozen=True)
class Played:
    """A run of local training and one of FedAvg by three sites, two of which have a shifted test."""

    folder: Path
    said: Spoken

    def end(self, method: str, site: str, part: str) -> float:
        """What the site's own book says of the finished model."""
        file = next(self.folder.glob(f"played/sites/{site}/runs/{method}-*/history.jsonl"))
        last = json.loads(file.read_text().splitlines()[-1])
        assert last["task"].endswith("-finish")
        accuracy: float = last["scores"][f"pre/{part}/combined"]["accuracy"]
        return accuracy


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Two short runs."""
    folder = tmp_path_factory.mktemp("shifted")
    for seed, site in enumerate(("hospital_a", *SHIFTED)):
        place = write_site(folder / "data" / site, samples=24, size=12, seed=seed)
        if site in SHIFTED:
            shutil.copy(
                write_site(folder / site, samples=36, size=12, seed=9) / "test.npz", place / "shifted.npz"
            )
    for method in ("local", "fedavg"):
        words = ("--method", method, "--rounds", "2", "--backbone", "mlp", "--set", "lr=0.01")
        said = pfl("simulate", "--data", folder / "data", "--out", folder / "played", "--json", *words)
        check_clear(said, 0)
    return Played(folder, said)


def mean(values: list[float]) -> float:
    """Exact, whatever the order."""
    return math.fsum(values) / len(values)


def test_a_simulation_tells_both(played: Played) -> None:
    """Each site's accuracy on each test it has."""
    told = json.loads(played.said.out)["accuracy"]
    assert set(SHIFTED) == {site for site, row in told.items() if "pre/shifted/combined" in row}
    for site in SHIFTED:
        assert played.end("fedavg", site, "shifted") == told[site]["pre/shifted/combined"]
        assert played.end("fedavg", site, "test") == told[site]["pre/test/combined"]


def test_a_table_of_sites_shows_the_shifted_test_second() -> None:
    """After the test of the whole model, before its parts and the validation data."""
    names = ("test/head", "validation/combined", "shifted/head", "shifted/combined", "test/combined")
    console = Console(width=120, file=StringIO(), soft_wrap=True, highlight=False)
    show_sites({"a": {f"pre/{name}": 0.5 for name in names}, "b": {"pre/test/combined": 0.5}}, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # it is the StringIO from above
    rows = [line.replace("┃", " ").split() for line in lines if "test" in line or "combined" in line]
    assert ["test", "shifted", "test"] == rows[0][:3]
    assert ["site", "combined", "combined", "head"] == rows[1][:4]


def test_a_report_tells_both(played: Played, tmp_path: Path) -> None:
    """Numbers, first sentences, rows and a drawing; the headline stays the test."""
    numbers, text = report(played.folder / "played", tmp_path / "out")
    page = Page(text)
    ends = {site: played.end("fedavg", site, "shifted") for site in SHIFTED}
    tested = [played.end("fedavg", site, "test") for site in ("hospital_a", *SHIFTED)]
    assert ends == numbers["shifted_by_site"]
    assert (2, pytest.approx(mean([*ends.values()]))) == (
        numbers["shifted"]["sites"],
        numbers["shifted"]["mean"],
    )
    assert ("pre/test/combined", 3) == (numbers["headline"], numbers["final"]["sites"])
    assert pytest.approx(mean(tested)) == numbers["final"]["mean"]
    shown = [
        f"{100 * mean([*ends.values()]):.2f}",
        f"{100 * mean([played.end('local', s, 'shifted') for s in SHIFTED]):.2f}",
    ]
    assert ["fedavg, shifted", shown[0]] == page.row("fedavg, shifted")[:2]
    assert ["local, shifted", shown[1]] == page.row("local, shifted")[:2]
    assert ["fedavg, shifted", "local, shifted"] == page.row("site")[-2:]
    for site in SHIFTED:
        local = played.end("local", site, "shifted")
        assert [f"{100 * ends[site]:.2f}", f"{100 * local:.2f}"] == page.row(site)[-2:]
    assert ["", ""] == page.row("hospital_a")[-2:]
    assert re.search(rf"shifted test data.* {re.escape(shown[0][:3])}", text)
    assert "shifted, over rounds" in text


def test_a_report_of_data_without_a_shifted_test_does_not_speak_of_one(
    played: Played, tmp_path: Path
) -> None:
    """As before."""
    write_site(tmp_path / "data" / "a", samples=24, size=12)
    write_site(tmp_path / "data" / "b", samples=24, size=12)
    words = ("--method", "local", "--rounds", "1", "--backbone", "mlp", "--json")
    check_clear(pfl("simulate", "--data", tmp_path / "data", "--out", tmp_path / "out", *words), 0)
    numbers, text = report(tmp_path / "out", tmp_path / "report")
    assert (None, {}) == (numbers["shifted"], numbers["shifted_by_site"])
    assert "shifted" not in text.lower()
