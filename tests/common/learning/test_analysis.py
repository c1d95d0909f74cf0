"""The measures of a report have the values one can work out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from pfl_common.learning.analysis import fixed_subset, linear_cka, separate_classes

torch.set_num_threads(1)

X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]])
Y = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 3.0]])


def test_separation_golden_values() -> None:
    """Four vectors of two classes."""
    separation = separate_classes(X, torch.tensor([0, 0, 1, 1]))
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
    assert math.isnan(separate_classes(torch.ones(4, 2), torch.tensor([0, 0, 1, 1])).explained)


def test_cka_golden_values() -> None:
    """Two representations of four inputs; each is like itself."""
    assert linear_cka(X, Y) == pytest.approx(0.442613, abs=1e-5)
    assert linear_cka(Y, X) == pytest.approx(0.442613, abs=1e-5)
    assert linear_cka(X, X) == pytest.approx(1.0)


def test_cka_ignores_scale_shift_and_rotation() -> None:
    """Two models may use other axes and units for the same thing, however small."""
    angle = 0.7
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    assert linear_cka(X @ turn * 1e-6 + 5e-6, Y) == pytest.approx(0.442613, abs=1e-5)


def test_cka_of_constants_is_undefined() -> None:
    """A model that says the same of every input is like nothing."""
    constant = torch.full(
        (6, 2), 0.7, dtype=torch.float64
    )  # its mean over six rows is not 0.7 to the last bit
    assert math.isnan(linear_cka(constant, torch.eye(6)))


def test_cka_refuses_other_inputs() -> None:
    """Rows are compared one by one, so there must be equally many."""
    with pytest.raises(ValueError, match="3 and 4 inputs"):
        linear_cka(X[:3], Y)


def test_subset_is_fixed_and_bounded() -> None:
    """The same samples each time; all of a small set; distinct places of a large one."""
    assert fixed_subset(3).tolist() == [0, 1, 2]
    chosen = fixed_subset(100, most=10).tolist()
    assert chosen == fixed_subset(100, most=10).tolist()
    assert len(set(chosen)) == 10
    assert chosen == sorted(chosen)
    assert chosen != list(range(10))
