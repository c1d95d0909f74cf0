"""A report says above and below only of runs that differ in nothing but the method; of others it says what differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pfl_common.spec.manifest import Entry
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import Model, RunSpec
from tests.deploy.support.reported import Book, Page, measured, report

MODEL = Model("cnn", (1, 8, 8), ("x", "y"))
SETTINGS = {"lr": 0.1, "momentum": 0.5, "batch": 32, "lambda": 3.0}
PINNED = {
    name: (Entry("encoder.weight", "float32", (4,)),)
    for name in ("init", "train/train/down", "train/train/up")
}
SPEC = RunSpec(
    "dualfed-001-aaaa",
    "dualfed",
    SETTINGS,
    MODEL,
    rounds=2,
    seed=5,
    roster=("one", "two"),
    data={"one": "11", "two": "22"},
    manifests=PINNED,
)
PLAIN = replace(
    SPEC, id="fedavg-001-aaaa", method="fedavg", settings={"lr": 0.1, "momentum": 0.5, "batch": 32}
)


def write(folder: Path, spec: RunSpec, *accuracies: float, rounds: int = 2) -> Path:
    """A finished run whose sites ended so."""
    book = Book(folder, spec, sites=("one", "two"))
    for number in range(1, rounds + 1):
        book.commit(number)
    book.journal.sum_up([f"{rounds:06d}-1-finish"], measured(*accuracies))
    return book.close()


def lead(text: str) -> str:
    """The page's first sentences."""
    words = " ".join(" ".join(Page(text).words).split())
    return words[words.index("After its last round") : words.index("mean accuracy on the sites")]


def test_runs_that_differ_in_nothing_else_are_above_and_below(tmp_path: Path) -> None:
    """Which settings of their own the methods have stands in the same sentence."""
    run = write(tmp_path, SPEC, 0.6, 0.8)
    write(tmp_path, PLAIN, 0.5, 0.7)
    numbers, text = report(run, tmp_path / "out")
    for fact in ("10.0 points above fedavg", "lambda 3, there none"):
        assert fact in lead(text)
    assert {"fedavg": pytest.approx(0.1)} == numbers["gain"]
    (beside,) = numbers["beside"]
    assert ([], ["lambda 3, there none"]) == (beside["not_comparable"], beside["differs"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": {**PLAIN.settings, "momentum": 0.0}}, "momentum 0.5, there 0"),
        ({"settings": {**PLAIN.settings, "lr": 0.8}}, "lr 0.1, there 0.8"),
        ({"model": replace(MODEL, backbone="mlp")}, "backbone cnn, there mlp"),
        ({"model": replace(MODEL, encoder_projector=True)}, "encoder_projector false, there true"),
        ({"seed": 6}, "seed 5, there 6"),
        ({"rounds": 3}, "rounds 2, there 3"),
        (
            {"participation": Participation(0.5, 1.0, drop=0.1)},
            "participation 1, there 0.5..1 with drop-outs 0.1",
        ),
    ],
)
def test_whatever_else_differs_is_named_with_both_values(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    """And neither run is called better, in words, tiles or JSON."""
    run = write(tmp_path, SPEC, 0.6, 0.8)
    write(tmp_path, replace(PLAIN, **change), 0.5, 0.7)
    numbers, text = report(run, tmp_path / "out")
    for fact in ("60.0 %", f"not comparable: {words}."):
        assert fact in lead(text)
    assert "points above" not in text
    assert "points against" not in text
    assert {} == numbers["gain"]
    assert [words] == numbers["beside"][0]["not_comparable"]


def test_no_run_of_other_data_is_taken_by_itself(tmp_path: Path) -> None:
    """However new it is; who names it sees what differs."""
    run = write(tmp_path, SPEC, 0.6, 0.8)
    other = write(tmp_path, replace(PLAIN, data={"one": "11", "two": "33"}), 0.5, 0.7)
    numbers, _ = report(run, tmp_path / "out")
    assert [] == numbers["beside"]
    numbers, text = report(run, tmp_path / "named", "--beside", other)
    for fact in ("60.0 %", "not comparable: data of two."):
        assert fact in lead(text)
    assert {} == numbers["gain"]


def test_an_equal_run_is_taken_before_a_newer_one_that_differs(tmp_path: Path) -> None:
    """The newest of those that can be compared."""
    run = write(tmp_path, SPEC, 0.6, 0.8)
    write(tmp_path, PLAIN, 0.5, 0.7)
    write(tmp_path, replace(PLAIN, id="fedavg-002-aaaa", settings={**PLAIN.settings, "lr": 0.01}), 0.1, 0.1)
    numbers, _ = report(run, tmp_path / "out")
    assert [PLAIN.id] == [told["run"] for told in numbers["beside"]]


def test_older_runs_are_compared_by_sites_and_samples(tmp_path: Path) -> None:
    """They noted no fingerprints: other numbers of samples are other data."""
    run = write(tmp_path, replace(SPEC, data={}), 0.6, 0.8)
    book = Book(tmp_path, replace(PLAIN, data={}), sites=("one", "two"))
    book.journal.register("one", '{"samples": 40}', late=False)
    book.journal.sum_up(["000002-1-finish"], measured(0.5, 0.7))
    other = book.close()
    assert [] == report(run, tmp_path / "out")[0]["beside"]
    told = report(run, tmp_path / "named", "--beside", other)[0]
    assert ["samples of one none, there 40"] == told["beside"][0]["not_comparable"]


def test_less_local_is_told_of_comparable_runs_alone(tmp_path: Path) -> None:
    """What hinders stands in the cell."""
    run = write(tmp_path, SPEC, 0.6, 0.8)
    settings = {**PLAIN.settings, "momentum": 0.0}
    write(tmp_path, replace(PLAIN, id="local-001-aaaa", method="local", settings=settings), 0.5, 0.7)
    page = Page(report(run, tmp_path / "out")[1])
    assert "not comparable: momentum 0.5, there 0" in page.row("dualfed", "70.00")


def test_what_is_left_to_the_method_is_not_what_is_not_there(tmp_path: Path) -> None:
    """A weight that follows from the network is null; the other method has none."""
    run = write(tmp_path, replace(SPEC, settings={**SETTINGS, "lambda": None}), 0.6, 0.8)
    write(tmp_path, PLAIN, 0.5, 0.7)
    assert "lambda null, there none" in lead(report(run, tmp_path / "out")[1])
