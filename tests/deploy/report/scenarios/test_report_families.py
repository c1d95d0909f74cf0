"""What methods tell of their work, in pictures: numbers of one family together, all of them, with their sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common import methods
from pfl_deploy.report.charts.model import LineChart
from pfl_deploy.report.charts.select import MOST_BANDED, draw_all, draw_family
from pfl_deploy.report.make import Asked, gather
from tests.deploy.support.processes import write_site
from tests.deploy.support.reported import SITES, Page, pfl, report
from tests.words import check_clear


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedCP and FedPick, which tell the most, two rounds each."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, site in enumerate(SITES):
        write_site(folder / "data" / site, samples=18 + 12 * seed, size=12, seed=seed)
    for method in ("fedcp", "fedpick"):
        words = ["--method", method, "--rounds", "2", "--backbone", "mlp", "--json", "--set", "batch=8"]
        check_clear(pfl("simulate", "--data", folder / "data", "--out", folder / method, *words), 0)
    return folder


@pytest.mark.parametrize("method", ["fedcp", "fedpick"])
def test_each_family_is_one_picture_with_its_sentence(runs: Path, tmp_path: Path, method: str) -> None:
    """Every number that a site wrote down is a line, or an edge of a band, of its family's picture."""
    facts = gather(Asked(str(runs / method), fewest=1))
    charts = draw_all(facts)
    numbers = {name for history in facts.run.histories.values() for name in history.learning}
    families = {name.partition("/")[0] for name in numbers}
    assert families == {name.removeprefix("learning_") for name in charts if name.startswith("learning_")}
    for family in families:
        parts = {name.partition("/")[2] for name in numbers if name.partition("/")[0] == family}
        chart = charts[f"learning_{family}"]
        assert isinstance(chart, LineChart)
        shown = {line.name for line in chart.lines if line.style == "full"}
        if {"p10", "p50", "p90"} <= parts:
            parts -= {"p10", "p90"}
        assert shown == ({part or family for part in parts} if len(parts) > 1 else shown)
        assert len(shown) == len(parts)
    page = report(runs / method, tmp_path)[1]
    words = "".join(Page(page).words)
    for family in families:
        assert f"<h3>{family}</h3>" in page
        assert methods.load(method).diagnostics[family] in words


def test_quantiles_are_a_band_around_their_middle(runs: Path) -> None:
    """Means over sites of what each wrote down: the median, and between the tenth and the ninetieth percent."""
    facts = gather(Asked(str(runs / "fedcp"), fewest=1))
    (line,) = draw_all(facts)["learning_share"].lines
    books = [history.learning for history in facts.run.histories.values()]

    def mean(part: str, number: int) -> float:
        return sum(book[f"share/{part}"][number] for book in books) / len(books)

    assert "p50" == line.name
    assert {n: pytest.approx(mean("p50", n)) for n in (1, 2)} == line.points
    for number, (low, high) in line.band.items():
        assert pytest.approx((mean("p10", int(number)), mean("p90", int(number)))) == (low, high)
    assert {1.0, 2.0} == line.band.keys()


def test_few_lines_have_their_range_over_sites_and_many_have_none() -> None:
    """Two bands can be told apart, three cannot."""
    for count in (2, 3):
        parts = {f"n{number}": {1: float(number)} for number in range(count)}
        ranges = {part: {1: (0.0, 9.0)} for part in parts}
        (chart,) = draw_family("x", parts, ranges).values()
        assert [count <= MOST_BANDED] * count == [bool(line.band) for line in chart.lines]


def test_no_number_is_left_out_for_want_of_colours() -> None:
    """Seven numbers stand in two pictures of at most five lines, each with a colour of its own."""
    parts = {f"n{number}": {1: float(number), 2: 0.0} for number in range(7)}
    made = draw_family("x", parts, {})
    assert ["x (1 of 2)", "x (2 of 2)"] == list(made)
    assert list(parts) == [line.name for chart in made.values() for line in chart.lines]
    assert all(len({line.kind for line in chart.lines}) == len(chart.lines) <= 5 for chart in made.values())


def test_two_bands_of_one_family() -> None:
    """A mean with its ends beside a median with its quantiles: two lines, two bands."""
    parts = {
        part: {1: float(value)} for value, part in enumerate(("least", "p10", "mean", "p50", "p90", "most"))
    }
    (chart,) = draw_family("x", parts, {}).values()
    assert {"mean": {1.0: (0.0, 5.0)}, "p50": {1.0: (1.0, 4.0)}} == {
        line.name: line.band for line in chart.lines
    }
