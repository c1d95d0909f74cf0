"""Evaluations as vectors: what can be read from a sum, by hand and against numpy, and what is no evaluation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfl_common import evaluation

NAME = "pre/test/combined"


def summed(*sites: tuple[int, int, float]) -> dict[str, float]:
    return evaluation.summary(evaluation.add({NAME: evaluation.vector(*site)} for site in sites)[NAME])


def test_one_vector() -> None:
    """3 of 4 right: accuracy 0.75, its square, the loss, and a one in bin 75."""
    values = evaluation.vector(3, 4, 0.5)
    assert [3.0, 4.0, 0.75, 0.5625, 0.5] == values[:5]
    assert [75] == [place for place, held in enumerate(values[5:]) if held]
    assert evaluation.WIDTH == len(values)


@pytest.mark.parametrize(
    "correct, samples, place", [(0, 7, 0), (7, 7, 100), (1, 200, 1), (1, 201, 0), (2, 3, 67)]
)
def test_bins_round_to_the_nearest_percent(correct: int, samples: int, place: int) -> None:
    """Half a percent goes up."""
    assert 1.0 == evaluation.vector(correct, samples, 0.0)[5 + place]


def test_three_sites_by_hand() -> None:
    """Accuracies 0.9, 0.8, 0.7 of 10, 10 and 100 samples: the fairness numbers of the reference example."""
    found = summed((9, 10, 0.1), (8, 10, 0.2), (70, 100, 0.6))
    expected = {
        "sites": 3,
        "acc_macro": 0.8,
        "acc_micro": 87 / 120,
        "acc_std": 0.08164966,
        "acc_variation": 0.10206207,
        "acc_variation_micro": 0.08164966 / (87 / 120),
        "acc_worst_decile": 0.7,
        "loss": 0.3,
    }
    assert expected == pytest.approx(found)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(50, 60)), min_size=1, max_size=40))
def test_as_numpy_says(sites: list[tuple[int, int]]) -> None:
    """Mean and deviation are exact, the worst decile is right to half a bin."""
    accuracies = np.array([correct / samples for correct, samples in sites])
    found = summed(*((correct, samples, 1.0) for correct, samples in sites))
    assert accuracies.mean() == pytest.approx(found["acc_macro"])
    assert accuracies.std() == pytest.approx(found["acc_std"], abs=1e-6)
    worst = np.sort(accuracies)[: math.ceil(len(sites) / 10)].mean()
    assert worst == pytest.approx(found["acc_worst_decile"], abs=0.00501)


@pytest.mark.golden("gpfl", item=15)
@pytest.mark.golden("gpfl", item=23)
def test_golden_fairness() -> None:
    """Accuracies 0.9, 0.8, 0.7 of 10, 20 and 70 samples: their spread relative to 0.8 over sites, 0.74 over samples."""
    found = summed((9, 10, 0.1), (16, 20, 0.2), (49, 70, 0.6))
    assert 8.164966 == pytest.approx(100 * found["acc_std"], abs=1e-5)
    assert 10.206207 == pytest.approx(100 * found["acc_variation"], abs=1e-5)
    assert 11.033738 == pytest.approx(100 * found["acc_variation_micro"], abs=1e-5)


def test_nobody_is_right() -> None:
    """A spread over accuracies of 0 is not defined; everything else is 0."""
    found = summed((0, 5, 2.0), (0, 9, 2.0))
    assert (0.0, 0.0, 0.0) == (found["acc_macro"], found["acc_std"], found["acc_worst_decile"])
    assert math.isnan(found["acc_variation"])
    assert math.isnan(found["acc_variation_micro"])


def test_sites_with_different_views() -> None:
    """Each name is summed over the sites that report it."""
    total = evaluation.add(
        [{NAME: evaluation.vector(1, 2, 0.0)}, {"pre/validation/combined": evaluation.vector(2, 2, 0.0)}]
    )
    assert [1.0, 1.0] == [evaluation.summary(values)["sites"] for _, values in sorted(total.items())]


def changed(place: int, value: float) -> list[float]:
    values = evaluation.vector(3, 4, 0.5)
    values[place] = value
    return values


def test_an_honest_report() -> None:
    """What `vector` makes is taken, for every point, split and view."""
    evaluation.check(
        {
            f"{point}/{split}/combined": evaluation.vector(5, 7, 1.25)
            for point in ("pre", "post")
            for split in ("test", "shifted", "validation")
        }
    )
    evaluation.check({})


@pytest.mark.parametrize(
    "values",
    [
        [],
        evaluation.vector(3, 4, 0.5)[:-1],
        [*evaluation.vector(3, 4, 0.5), 0.0],
        changed(4, math.nan),
        changed(4, math.inf),
        changed(0, 5.0),
        changed(0, -1.0),
        changed(0, 2.5),
        changed(1, 0.0),
        changed(2, 0.99),
        changed(3, 0.5),
        changed(5 + 75, 0.0),
        changed(5 + 99, 1.0),
        [0.0] * evaluation.WIDTH,
    ],
)
def test_numbers_that_no_evaluation_gives(values: list[float]) -> None:
    """A made-up vector would spoil the sum, or end the run with a division by nothing."""
    with pytest.raises(ValueError, match=NAME):
        evaluation.check({NAME: values})


@pytest.mark.parametrize(
    "name", ["", "test", "pre/secret/combined", "pre/test/x y", "mid/test/combined", "pre/test/" + "v" * 33]
)
def test_names_that_no_evaluation_has(name: str) -> None:
    """Names become labels of metrics: not anything a peer says."""
    with pytest.raises(ValueError, match="expected point/split/view"):
        evaluation.check({name: evaluation.vector(3, 4, 0.5)})


def test_too_many_evaluations() -> None:
    """A report is small."""
    many = {f"pre/test/v{n}": evaluation.vector(3, 4, 0.5) for n in range(evaluation.MOST + 1)}
    with pytest.raises(ValueError, match="49 evaluations"):
        evaluation.check(many)


def test_a_number_of_three_sites_by_hand() -> None:
    """1, 2 and 6: sums 9 and 41, mean 3, variance 41/3 - 9 = 14/3."""
    total = evaluation.add(evaluation.tell({"share/p10": value}) for value in (1.0, 2.0, 6.0))
    assert {"told/share/p10": [9.0, 41.0, 3.0]} == total
    assert (3.0, pytest.approx(math.sqrt(14 / 3))) == evaluation.spread(total["told/share/p10"])
    assert {"share/p10": [9.0, 41.0, 3.0]} == evaluation.told(total)
    assert {} == evaluation.evaluations(total)


def test_equal_numbers_have_no_spread() -> None:
    """Rounding must not make a variance negative."""
    (values,) = evaluation.add([evaluation.tell({"loss": 0.1})] * 3).values()
    assert evaluation.spread(values) == (pytest.approx(0.1), pytest.approx(0.0, abs=1e-8))


def test_what_is_told_is_taken() -> None:
    """As methods call their numbers, tensors' names too; what no coordinator would take stays at the site."""
    fitting = {"loss": -1.5, "marked/encoder.layer1.0.conv1.weight": 0.0, "share/p10": 1e30, "scale": -1e-200}
    odd = {"odd": math.nan, "endless": -math.inf, "vast": 2e30, "two words": 1.0, "a/b/c": 1.0, "x" * 33: 1.0}
    told = evaluation.tell(fitting | odd)
    evaluation.check(told | {NAME: evaluation.vector(3, 4, 0.5)})
    assert fitting.keys() == evaluation.told(told).keys()
    many = evaluation.tell({f"marked/{n}": 1.0 for n in range(1000)})
    evaluation.check(many)
    assert evaluation.MOST_TOLD == len(many)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [2.0, 4.0],
        [2.0, 4.0, 1.0, 1.0],
        [2.0, 4.0, 2.0],
        [2.0, 4.0, 0.0],
        [2.0, 4.1, 1.0],
        [2.0, -4.0, 1.0],
        [0.0, 1.0, 1.0],
        [math.nan, math.nan, 1.0],
        [math.inf, math.inf, 1.0],
        [2.0, math.inf, 1.0],
        [2.0, 4.0, math.nan],
        [1e31, 1e62, 1.0],
        evaluation.vector(3, 4, 0.5),
    ],
)
def test_numbers_that_no_training_tells(values: list[float]) -> None:
    """More than one site's weight, a square that is another number's, what is no number or too large for a sum."""
    with pytest.raises(ValueError, match="told/loss"):
        evaluation.check({"told/loss": values})


def test_an_evaluation_is_no_told_number() -> None:
    """Neither can pass for the other."""
    with pytest.raises(ValueError, match=NAME):
        evaluation.check({NAME: [2.0, 4.0, 1.0]})


@pytest.mark.parametrize(
    "name", ["", "Loss", "a b", "a/", "/a", "a/b/c", "a/b c", "x" * 33, "a/" + "x" * 97, "a\n"]
)
def test_names_that_no_number_has(name: str) -> None:
    """A family and a part, of letters that need no care on a page."""
    with pytest.raises(ValueError, match="expected told/family"):
        evaluation.check({f"told/{name}": [2.0, 4.0, 1.0]})


def test_too_many_told_numbers() -> None:
    """They are counted by themselves: evaluations have as much room as without them."""
    many = {f"told/marked/{n}": [2.0, 4.0, 1.0] for n in range(evaluation.MOST_TOLD)}
    evaluation.check(many | {f"pre/test/v{n}": evaluation.vector(3, 4, 0.5) for n in range(evaluation.MOST)})
    with pytest.raises(ValueError, match="0 evaluations and 257 told numbers"):
        evaluation.check(many | {"told/one_more": [2.0, 4.0, 1.0]})


def test_told_numbers_of_one_site_alone_are_made_up() -> None:
    """A site that tells nothing has no say in what the others tell, and a view's name is no number's."""
    view = {NAME: evaluation.vector(3, 4, 0.5)}
    honest, own = (
        evaluation.tell({"loss": 1.0}),
        evaluation.tell({"loss": 1.0, "made/up": 1.0, "made/combined": 1.0}),
    )
    assert [view | honest] * 2 == evaluation.agreed([view | honest, view | own])
    assert [view, view, view | honest] == evaluation.agreed([view, view, view | honest])


def test_one_site_does_not_own_the_pooled_figures() -> None:
    """Who claims 1e12 samples, all wrong, counts with a hundred times those of the site in the middle; a loss of 1e30
    with a hundred. What sites say within that stays as it is.
    """
    honest = [{NAME: evaluation.vector(90, 100, 0.4)} for _ in range(4)]
    hostile = {NAME: evaluation.vector(0, 10**12, 1e30)}
    found = evaluation.summary(evaluation.add(evaluation.bounded([*honest, hostile]))[NAME])
    assert 360 / (400 + 100 * 100) == pytest.approx(found["acc_micro"])
    assert (4 * 0.4 + 100) / 5 == pytest.approx(found["loss"])
    assert 0.72 == pytest.approx(found["acc_macro"])
    uneven = [*honest, {NAME: evaluation.vector(5000, 10_000, 30.0), "told/loss": [1.0, 1.0, 1.0]}]
    assert uneven == evaluation.bounded(uneven)
    two = [{NAME: evaluation.vector(0, samples, 0.5)} for samples in (10, 10_000)]
    assert [10, 100 * 10] == [report[NAME][1] for report in evaluation.bounded(two)], (
        "the lower of two middles"
    )


def test_more_samples_than_a_site_can_have() -> None:
    """Its coordinator knows how many those are."""
    report = {NAME: evaluation.vector(3, 2000, 0.5)}
    evaluation.check(report, most_samples=2000)
    with pytest.raises(ValueError, match="2000 samples; expected at most 1999"):
        evaluation.check(report, most_samples=1999)
