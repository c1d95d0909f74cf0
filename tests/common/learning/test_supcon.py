"""The contrastive loss has the published value, sample by sample, and never breaks a batch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pfl_common.learning.supcon import supervised_contrast

torch.set_num_threads(1)

FOUR = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)


def by_pairs(features: list[list[float]], labels: list[int], temperature: float) -> float:
    """Eq. 7 in plain loops, one pair after the other."""

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(p * q for p, q in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    total = 0.0
    for a, own in enumerate(features):
        positives = [b for b in range(len(features)) if b != a and labels[b] == labels[a]]
        among = sum(math.exp(cosine(own, f) / temperature) for c, f in enumerate(features) if c != a)
        shares = [cosine(own, features[b]) / temperature - math.log(among) for b in positives]
        total -= sum(shares) / len(shares) if shares else 0.0
    return total / len(features)


@pytest.mark.parametrize(
    ("labels", "per_anchor", "expected"),
    [
        ([0, 1, 0, 1], [0.243745, 1.810459, 0.722272, 0.320961], 0.774359),
        ([0, 1, 0, 2], [0.243745, 0.0, 0.722272, 0.0], 0.241504),
    ],
    ids=["pairs", "two singletons"],
)
def test_golden_values(labels: list[int], per_anchor: list[float], expected: float) -> None:
    """Four vectors at temperature 0.5: a sample alone in its class adds nothing and still counts."""
    loss = supervised_contrast(FOUR, torch.tensor(labels), temperature=0.5)
    assert expected == pytest.approx(loss.item(), abs=1e-5)
    assert sum(per_anchor) / 4 == pytest.approx(loss.item(), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.05, 0.2, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_sum_over_pairs(seed: int, temperature: float) -> None:
    """The matrix form and the published double sum are the same number."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (9,), generator=generator)
    expected = by_pairs(features.tolist(), labels.tolist(), temperature)
    assert expected == pytest.approx(supervised_contrast(features, labels, temperature=temperature).item())


def test_length_of_a_vector_does_not_matter() -> None:
    """Only directions are compared."""
    labels, scale = torch.tensor([0, 1, 0, 1]), torch.tensor([[3.0], [0.1], [7.0], [1.0]])
    expected = supervised_contrast(FOUR, labels, temperature=0.2).item()
    assert expected == pytest.approx(supervised_contrast(FOUR * scale, labels, temperature=0.2).item())


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (torch.ones(1, 3), torch.tensor([0])),
        (torch.eye(3), torch.tensor([0, 1, 2])),
        (torch.zeros(4, 3), torch.tensor([0, 0, 1, 1])),
        (torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 0])),
    ],
    ids=["one sample", "only singletons", "zero vectors", "opposite pair"],
)
def test_gradient_stays_finite(features: Tensor, labels: Tensor) -> None:
    """Batches that leave nothing to compare, or nothing to divide by, do no harm."""
    features = features.clone().requires_grad_()
    loss = supervised_contrast(features, labels, temperature=0.01)
    loss.backward()
    assert loss.isfinite()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_nothing_to_pull_together_is_zero() -> None:
    """A batch of singletons has no loss at all."""
    assert supervised_contrast(torch.eye(3), torch.tensor([0, 1, 2]), temperature=0.2).item() == 0.0
