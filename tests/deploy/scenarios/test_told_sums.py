"""What methods tell of their training, as sums over real sites: in the report without any site's folder, with a site
that tells nothing, and listed by those that do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pfl_client.run_folder.audit import entries
from pfl_common import methods
from pfl_deploy.report.charts.select import draw_all
from pfl_deploy.report.make import Asked, gather
from tests.deploy.support.processes import Machine, write_site
from tests.deploy.support.reported import SITES, Page, deviation, pfl, report
from tests.words import check_clear

ROUNDS = 2
*TELLING, SILENT = SITES


@dataclass(frozen=True)
class Played:
    """A run that is over: the coordinator's folder of it, away from those of its sites, and theirs."""

    run: Path
    sites: Path

    def history(self, site: str) -> list[dict[str, dict[str, float]]]:
        """What training said in each round, from the site's own book."""
        (file,) = self.sites.glob(f"{site}/runs/*/history.jsonl")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [line["metrics"] for line in lines if line["task"].endswith("-train")]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """FedCP at two sites that tell and one that does not, all of them processes of their own."""
    machine = Machine(tmp_path_factory.mktemp("told"))
    try:
        for number, name in enumerate(SITES):
            write_site(machine.home / name, samples=24 + 8 * number, seed=number)
        asked = ("--method", "fedcp", "--rounds", str(ROUNDS), "--backbone", "mlp", "--set", "batch=8")
        server = machine.server(*asked, "--sites", str(len(SITES)), "--quorum", "1")
        started = [machine.client(machine.home / name) for name in TELLING]
        started.append(machine.client(machine.home / SILENT, "--no-tell-diagnostics"))
        codes = [machine.finish(site, log=name) for site, name in zip(started, SITES, strict=True)]
        assert [0] * len(SITES) == codes
        assert 0 == machine.stop(server)
    finally:
        machine.end_all()
    (run,) = machine.home.glob("pfl-state/runs/*")
    (sites,) = {folder.parent for folder in machine.home.glob(f"state/pfl/sites/*/{SILENT}")}
    yield Played(shutil.copytree(run, machine.home / "alone" / run.name), sites)


def test_the_report_has_mean_and_deviation_over_those_that_tell(played: Played, tmp_path: Path) -> None:
    """As worked from the books of these sites, which the report has not seen; the third site is in none of it."""
    numbers, page = report(played.run, tmp_path)
    assert {} == numbers["learning"]
    books = [played.history(site) for site in TELLING]
    names = {name for book in books for said in book for name in said}
    assert {"features/sparsity", "share/p10", "loss"} <= names == numbers["learning_summed"].keys()
    for name, rounds in numbers["learning_summed"].items():
        for place in range(ROUNDS):
            values = [book[place][name] for book in books]
            found = rounds[str(place + 1)]
            assert pytest.approx(sum(values) / len(values)) == found["mean"]
            assert pytest.approx(deviation(values), rel=1e-4, abs=1e-6) == found["deviation"]
            assert len(TELLING) == found["sites"]
    words = "".join(Page(page).words)
    assert "one standard deviation over these sites" in words
    for family in {name.partition("/")[0] for name in names}:
        assert f"<h3>{family}</h3>" in page
        assert methods.load("fedcp").diagnostics[family] in words


def test_the_picture_is_the_mean_with_its_band(played: Played) -> None:
    """One standard deviation to either side; with a site's book at hand it is drawn from the book, as before."""
    chart, loss = draw_all(gather(Asked(str(played.run), fewest=1)))["learning_loss"], {}
    for place in range(ROUNDS):
        values = [played.history(site)[place]["loss"] for site in TELLING]
        loss[place + 1] = sum(values) / len(values), deviation(values)
    (line,) = chart.lines
    assert {number: pytest.approx(mean) for number, (mean, _) in loss.items()} == line.points
    for number, (mean, spread) in loss.items():
        assert pytest.approx((mean - spread, mean + spread), rel=1e-4) == line.band[number]
    facts = gather(Asked(str(played.run), sites=(played.sites,)))
    assert not facts.run.learning_is_summed
    assert 1 + len(SITES) == len(draw_all(facts)["learning_loss"].lines)


def test_nothing_of_it_leaves_a_site_that_tells_nothing(played: Played) -> None:
    """Its scores do; its own book has all. One that tells lists it with each report of a training, as what it is."""
    for site in SITES:
        said = [e["said"] for e in entries(played.sites / site) if e["kind"] == "scores"]
        told = [report["diagnostics"].keys() for report in said if "diagnostics" in report]
        assert ROUNDS + 1 == len(said)
        assert all("pre/test/combined" in report["scores"] for report in said)
        assert "told/" not in (played.sites / site / "audit.jsonl").read_text()
        trained = [metrics.keys() for metrics in played.history(site)]
        assert ([] if site == SILENT else trained) == told
        shown = pfl("audit", "--sites", played.sites, site)
        check_clear(shown, 0)
        assert (site != SILENT) is ("scores and diagnostics" in shown.text)


def test_without_diagnose_only_what_learning_says_is_told(tmp_path: Path) -> None:
    """The method's setting; a simulation takes the same way as a run over the network."""
    for seed, site in enumerate(SITES):
        write_site(tmp_path / "data" / site, samples=18, size=8, seed=seed)
    words = ("--method", "fedcp", "--rounds", "1", "--backbone", "mlp", "--set", "diagnose=false", "--json")
    words += ("--set", "batch=8")
    check_clear(pfl("simulate", "--data", tmp_path / "data", "--out", tmp_path / "out", *words), 0)
    numbers, _ = report(tmp_path / "out", tmp_path / "report")
    said = {name for told in numbers["learning"].values() for name in told}
    assert said == numbers["learning_summed"].keys()
    assert "loss" in said
    assert not [name for name in said if name.startswith(("features/", "share/", "objective/"))]
