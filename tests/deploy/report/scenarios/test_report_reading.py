"""How a report reads accuracies: over sites or samples, the best round of all or of each; bytes as papers count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common import evaluation, models
from pfl_common.methods import build_participant
from pfl_common.sealing import sealed_size
from pfl_common.spec.run import Model, RunSpec
from tests.deploy.report.scenarios.test_report_fair import SPEC
from tests.deploy.support.reported import SITES, Book, Page, Played, pfl, play, report
from tests.words import check_clear


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Three runs of the same three sites."""
    return play(tmp_path_factory.mktemp("played"))


def write(folder: Path) -> Path:
    """Three sites with 10, 20 and 70 test samples: 0.9, 0.8, 0.7 after round 1; 0.8, 0.7, 0.7 at the end."""
    book = Book(folder, replace(SPEC, roster=SITES), sites=SITES)
    for number in (1, 2):
        book.commit(number)
    for task, correct in (("000002-1-train", (9, 16, 49)), ("000002-1-finish", (8, 14, 49))):
        each = zip(correct, (10, 20, 70), strict=True)
        summed = evaluation.add({"pre/test/combined": evaluation.vector(c, n, 0.5)} for c, n in each)
        book.journal.sum_up([task], summed)
    return book.close()


@pytest.mark.parametrize(
    ("words", "best", "final", "variation"),
    [((), 0.8, 2.2 / 3, "10.21"), (("--acc-average", "micro"), 0.74, 0.71, "11.03")],
)
def test_the_average_that_counts(
    tmp_path: Path, words: tuple[str, ...], best: float, final: float, variation: float
) -> None:
    """Best, last, what lies between them, and the variation at the best round, over sites or over samples."""
    numbers, text = report(write(tmp_path), tmp_path / "out", *words)
    assert pytest.approx(best) == numbers["best_accuracy"]
    assert pytest.approx(best - final) == numbers["overfitting"]
    page = Page(text)
    shown = " ".join(" ".join(page.words).split())
    assert f"{100 * final:.1f} % " + ("over all test samples" if words else "on average over") in shown
    assert bool(words) is ("Accuracies are over all test samples together" in shown)
    assert f"{100 * (best - final):.1f} points" in shown
    row = page.row("dualfed, best: round 1")
    assert ["80.00", "74.00", "8.16", "70.00", variation, "3"] == row[1:7]
    assert {"acc_average": "micro" if words else "macro", "best_mode": "common_round"} == numbers["reading"]


def test_targets_are_reached_by_the_average_that_counts(tmp_path: Path) -> None:
    """0.78 is reached over sites, not over samples."""
    run = write(tmp_path)
    macro, _ = report(run, tmp_path / "one", "--target", "0.78")
    micro, _ = report(run, tmp_path / "two", "--target", "0.78", "--acc-average", "micro")
    assert (1, None) == (macro["reached"][0]["round"], micro["reached"][0])


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_each_site_at_its_own_best_round(played: Played, tmp_path: Path, average: str) -> None:
    """Worked again from the sites' own histories."""
    words = ("--best-mode", "per_client", "--acc-average", average)
    numbers, text = report(played.run("dualfed"), tmp_path, *words, "--sites", played.folder / "sites")
    best, samples = [], []
    for site in SITES:
        lines = [line["scores"].get("pre/test/combined") for line in played.history("dualfed", site)]
        found = [line for line in lines if line]
        best.append(max(line["accuracy"] for line in found))
        samples.append(found[0]["samples"] if average == "micro" else 1)
    expected = sum(a * n for a, n in zip(best, samples, strict=True)) / sum(samples)
    assert pytest.approx(expected) == numbers["best_accuracy"]
    assert numbers["best_accuracy"] >= numbers["best"]["micro" if average == "micro" else "mean"]
    assert "its own best round" in text


def test_each_sites_best_needs_each_sites_history(played: Played, tmp_path: Path) -> None:
    """With sums alone it is refused, and said what would do."""
    run = write(tmp_path)
    check_clear(
        pfl("report", run, "--out", tmp_path / "out", "--best-mode", "per_client"), 2, "history of each site"
    )
    check_clear(pfl("report", run, "--best-mode", "best"), 2, "best_mode", "'common_round' or 'per_client'")
    check_clear(pfl("report", run, "--acc-average", "mean"), 2, "acc_average", "'macro' or 'micro'")


def write_charged(folder: Path, *, charged: bool) -> tuple[Path, RunSpec]:
    """DualFed on a small network: one round of two sites, both counted."""
    model = Model("mlp", (1, 8, 8), ("x", "y"))
    settings = {"paper_accounting": charged}
    spec = replace(SPEC, model=model, settings=settings, id=f"dualfed-{charged}".lower())
    book = Book(folder, spec, sites=("one", "two"))
    book.commit(1, accuracies=(0.1, 0.1))
    book.commit(2, accuracies=(0.9, 0.9))
    return book.close(), spec


def test_bytes_are_counted_as_the_paper_does(tmp_path: Path) -> None:
    """A projector for each of two downloads and two updates of round 1; what was sent is told as it was."""
    told = {}
    for charged in (False, True):
        run, spec = write_charged(tmp_path / str(charged), charged=charged)
        told[charged] = report(run, tmp_path / f"out-{charged}", "--target", "0.5")
    features = models.build("mlp", shape=(1, 8, 8), classes=2).features
    charge = 4 * sum(p.numel() for p in build_participant(spec).projector.parameters())
    assert charge == 4 * (features * 256 + 256 + 2 * 256 + 256 * features + features + 2 * features)
    plain, paper = told[False][0], told[True][0]
    assert plain["reached"][0]["bytes"] + 4 * charge == paper["reached"][0]["bytes"]
    assert plain["bytes"]["pinned"] == paper["bytes"]["pinned"]
    assert 4 * sealed_size(16) + 2 * sealed_size(16) == plain["reached"][0]["bytes"]
    assert (0, charge) == (
        plain["bytes"]["charged_each_transfer"],
        paper["bytes"]["charged_each_transfer"],
    )
    assert [False, True] == [f"{charge:,} bytes are added" in told[charged][1] for charged in (False, True)]


def test_a_setting_that_is_gone_charges_nothing(tmp_path: Path) -> None:
    """A run of another release is reported all the same."""
    gone = replace(SPEC, settings={**SPEC.settings, "of_old": 1}, id="dualfed-old")
    book = Book(tmp_path, gone, sites=("one", "two"))
    book.commit(1, accuracies=(0.5, 0.5))
    numbers, _ = report(book.close(), tmp_path / "out")
    assert 0 == numbers["bytes"]["charged_each_transfer"]
