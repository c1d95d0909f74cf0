"""Diagnostics of representations have the values one can work out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from pfl_common.learning.measures import (
    class_cosines,
    fisher_scores,
    mean_fisher_score,
    most_selected,
    overlap_of_selections,
    separate_classes,
    sparsity,
)

torch.set_num_threads(1)

X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]])
PAIRS = torch.tensor([0, 0, 1, 1])


@pytest.mark.golden("dualfed", item=13)
def test_separation_golden_values() -> None:
    """Four vectors of two classes."""
    separation = separate_classes(X, PAIRS)
    assert separation.within == pytest.approx(0.146447, abs=1e-5)
    assert separation.total == pytest.approx(0.573223, abs=1e-5)
    assert separation.explained == pytest.approx(0.744521, abs=1e-5)


def test_separation_is_the_mean_over_all_pairs() -> None:
    """Classes count alike, whatever their size; absent classes do not count; self pairs do."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 0, 4, 4, 9])
    distance = 1 - cosine_similarity(features[:, None], features[None], dim=2)
    groups = [labels == c for c in (0, 4, 9)]
    within = sum(distance[a][:, a].mean().item() for a in groups) / 3
    total = sum(distance[a][:, b].mean().item() for a in groups for b in groups) / 9
    separation = separate_classes(features, labels)
    assert within == pytest.approx(separation.within)
    assert total == pytest.approx(separation.total)


def test_separation_of_one_direction_is_undefined() -> None:
    """Where nothing is spread there is nothing to explain."""
    assert math.isnan(separate_classes(torch.ones(4, 2), PAIRS).explained)


@pytest.mark.golden("fedpick", item=14)
def test_fisher_golden_values() -> None:
    """Component 1: means 1 and 5 around 3, variances 1: (2·4 + 2·4) / (2·1 + 2·1) = 4. Component 2: equal means."""
    z = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 0.0], [6.0, 2.0]])
    assert fisher_scores(z, PAIRS).tolist() == pytest.approx([4.0, 0.0])
    assert mean_fisher_score(z, PAIRS) == pytest.approx(2.0)


def test_fisher_weighs_classes_by_their_size() -> None:
    """0, 0, 3 and 1: means 1 and 1 around 1 score 0; with 5 for 1: (3·1 + 1·9) / (3·2) = 2 around 2."""
    labels = torch.tensor([7, 7, 7, 2])
    z = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 3.0], [1.0, 5.0]])
    assert fisher_scores(z, labels).tolist() == pytest.approx([0.0, 2.0])


def test_fisher_without_spread_within_classes() -> None:
    """A component that never varies scores 0; one that only varies between classes is left out of the mean."""
    z = torch.tensor([[0.1, 1.0, 0.0], [0.1, 1.0, 2.0], [0.1, 2.0, 4.0], [0.1, 2.0, 6.0]])
    scores = fisher_scores(z, PAIRS)
    assert scores[0] == 0
    assert scores[1].isnan()
    assert mean_fisher_score(z, PAIRS) == pytest.approx(2.0)


def test_fisher_takes_rounding_for_nothing() -> None:
    """Six times 0.7 has a mean that is not 0.7 to the last bit: still no spread at all."""
    z = torch.full((6, 1), 0.7, dtype=torch.float64)
    assert fisher_scores(z, torch.tensor([0, 0, 0, 0, 0, 1])).tolist() == [0.0]


def test_sparsity_counts_what_is_nothing_beside_the_length() -> None:
    """(3, 0, 4, 0): half. (1e5, 0.5, 1, 2): 0.5 and 0.9 are at most 1e-5 of the length. Mean 0.5; zeros: 1."""
    z = torch.tensor([[3.0, 0.0, 4.0, 0.0], [1e5, 0.5, 0.9, 2.0]])
    assert sparsity(z) == pytest.approx(0.5)
    assert sparsity(-z) == pytest.approx(0.5)
    assert sparsity(torch.cat([z, torch.zeros(2, 4)])) == pytest.approx(0.75)


def test_most_selected_is_half_and_ties_go_by_index() -> None:
    """Of five components two; the first of three that are equally frequent."""
    assert most_selected(torch.tensor([3, 9, 3, 3, 0])) == {0, 1}
    assert most_selected(torch.tensor([1, 1, 1, 1])) == {0, 1}


def test_overlap_of_two_domains() -> None:
    """{0, 1} and {1, 2} have one in common of three; equal ones all; one component leaves nothing to compare."""
    first, second = torch.tensor([5, 4, 1, 0]), torch.tensor([0, 4, 5, 1])
    assert overlap_of_selections(first, second) == pytest.approx(1 / 3)
    assert overlap_of_selections(first, first) == 1
    assert math.isnan(overlap_of_selections(first[:1], second[:1]))
    with pytest.raises(ValueError, match="4 and 3 components"):
        overlap_of_selections(first, second[:3])


def test_cosines_with_the_own_class_and_the_nearest_other() -> None:
    """Own 0.9 and 0.1, nearest others 0.5 and 0.4."""
    cosines = torch.tensor([[0.9, 0.5, -1.0], [0.4, 0.1, 0.2]])
    told = class_cosines(cosines, torch.tensor([0, 1]))
    assert {"cosine/own": pytest.approx(0.5), "cosine/rival": pytest.approx(0.45)} == told
