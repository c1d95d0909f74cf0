"""Measures by hand, and beside scikit-learn, which is no part of the product."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics

from pfl_deploy.prediction.measures import Scored, bootstrap


def draw(samples: int = 200, classes: int = 4, seed: int = 0, *, digits: int = 2) -> Scored:
    """Predictions that are better than chance, with many equal probabilities."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, classes, samples)
    scores = rng.normal(size=(samples, classes)) + 1.5 * np.eye(classes)[truth]
    shares = np.round(np.exp(scores) / np.exp(scores).sum(1, keepdims=True), digits) + 1e-6
    shares /= shares.sum(1, keepdims=True)
    return Scored(truth, shares.argmax(1), shares)


def by_hand() -> Scored:
    """Four samples of two classes; a third class occurs nowhere."""
    shares = np.array([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.4, 0.6, 0.0], [0.2, 0.8, 0.0]])
    return Scored(np.array([0, 0, 1, 1]), shares.argmax(1), shares)


def test_measures_worked_out_by_hand() -> None:
    """Three of four are right. Class 0: of four pairs three are in order and one is equal, 3.5 of 4."""
    scored = by_hand()
    assert [[1, 1, 0], [0, 2, 0], [0, 0, 0]] == scored.confusion().tolist()
    measured = scored.measure()
    assert (0.75, 3.5 / 4) == (measured["accuracy"], measured["auc"])
    assert measured["macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    facts = scored.class_facts()
    assert (2, 1, 1.0, 0.5) == (facts[0].samples, facts[0].predicted, facts[0].precision, facts[0].recall)
    assert math.isnan(facts[2].f1)
    assert math.isnan(facts[2].auc)
    # 0.6 is the upper end of its bin: two samples, of which one is right.
    assert [(2, 0.6, 0.5), (1, 0.8, 1.0), (1, 0.9, 1.0)] == [
        (b.samples, pytest.approx(b.confidence), b.accuracy) for b in scored.bins()
    ]
    assert scored.ece() == pytest.approx((2 * 0.1 + 0.2 + 0.1) / 4)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_scikit_learn(seed: int) -> None:
    """Ties and all."""
    scored = draw(seed=seed)
    measured = scored.measure()
    assert measured["accuracy"] == pytest.approx(metrics.accuracy_score(scored.truth, scored.predicted))
    assert measured["macro_f1"] == pytest.approx(
        metrics.f1_score(scored.truth, scored.predicted, average="macro")
    )
    assert measured["auc"] == pytest.approx(
        metrics.roc_auc_score(scored.truth, scored.shares, multi_class="ovr", average="macro")
    )
    assert np.array_equal(metrics.confusion_matrix(scored.truth, scored.predicted), scored.confusion())


def test_a_sample_that_counts_twice_is_two_samples() -> None:
    """So a resample is measured as if its samples were written out."""
    scored = draw(60)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    places = np.repeat(np.arange(60), counts)
    written = Scored(scored.truth[places], scored.predicted[places], scored.shares[places])
    assert written.measure() == pytest.approx(scored.measure(counts.astype(float)))


def test_intervals_hold_the_measure_and_are_the_same_twice() -> None:
    """Narrower with more samples; another seed gives others; accuracy as the normal approximation says."""
    few, many = (bootstrap(draw(n), resamples=300, seed=5) for n in (100, 1600))
    for name, found in many.items():
        assert found.low < found.value < found.high
        assert found.high - found.low < few[name].high - few[name].low
    assert few == bootstrap(draw(100), resamples=300, seed=5)
    assert few != bootstrap(draw(100), resamples=300, seed=6)
    share = many["accuracy"].value
    expected = 2 * 1.96 * math.sqrt(share * (1 - share) / 1600)
    assert many["accuracy"].high - many["accuracy"].low == pytest.approx(expected, rel=0.2)


def test_groups_are_drawn_whole() -> None:
    """Each sample copied nine times tells no more than once: by groups the interval stays as wide."""
    plain = draw(100)
    places = np.repeat(np.arange(100), 9)
    parts = plain.truth[places], plain.predicted[places], plain.shares[places]
    narrow, grouped = (
        bootstrap(Scored(*parts, groups), resamples=200, seed=0)["accuracy"] for groups in (None, places)
    )
    single = bootstrap(plain, resamples=200, seed=0)["accuracy"]
    assert (single.low, single.high) == pytest.approx((grouped.low, grouped.high))
    assert narrow.high - narrow.low < 0.5 * (grouped.high - grouped.low)


def test_one_class_alone_has_no_area() -> None:
    """And no interval for it; the others have."""
    shares = np.array([[0.9, 0.1], [0.4, 0.6]])
    found = bootstrap(Scored(np.array([0, 0]), shares.argmax(1), shares), resamples=20, seed=0)
    assert math.isnan(found["auc"].value)
    assert 0.5 == found["accuracy"].value
