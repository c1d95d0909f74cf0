"""The discrepancy of two sets of features has the published value, and a gradient wherever it is taken."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from pfl_common.learning.mmd import mmd2

torch.set_num_threads(1)

BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)
FIRST = torch.tensor([[0.0, 0, 0], [1, 2, 2]], dtype=torch.float64)
SECOND = torch.tensor([[0.0, 3, 4], [1, 2, 2]], dtype=torch.float64)


def by_pairs(first: list[list[float]], second: list[list[float]]) -> float:
    """The definition in plain loops, one pair and one bandwidth after the other."""

    def closeness(one: list[float], other: list[float]) -> float:
        square = sum((p - q) ** 2 for p, q in zip(one, other, strict=True))
        return sum(math.exp(-square / (2 * width)) for width in BANDWIDTHS)

    def mean(ones: list[list[float]], others: list[list[float]]) -> float:
        return sum(closeness(one, other) for one, other in product(ones, others)) / (len(ones) * len(others))

    return mean(first, first) + mean(second, second) - 2 * mean(first, second)


def test_golden_value() -> None:
    """Two sets of two, one sample in both: each mistake of item 17 gives another number than 0.982417."""
    assert 0.982417 == pytest.approx(mmd2(FIRST, SECOND, BANDWIDTHS).item(), abs=1e-6)


def test_equal_sets_do_not_differ() -> None:
    """Exactly 0, and so is what it asks of the first set."""
    own = FIRST.clone().requires_grad_()
    value = mmd2(own, FIRST, BANDWIDTHS)
    value.backward()
    assert 0.0 == value.item()
    assert own.grad is not None
    assert 0.0 == pytest.approx(own.grad.abs().max().item(), abs=1e-15)


def test_samples_that_are_equal_have_a_gradient() -> None:
    """Each sample is as far as 0 from itself: a root that is squared again would be NaN there."""
    own = torch.ones(3, 2, dtype=torch.float64).requires_grad_()
    mmd2(own, torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], dtype=torch.float64), BANDWIDTHS).backward()
    assert own.grad is not None
    assert own.grad.isfinite().all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", [(5, 5), (4, 7)], ids=str)
def test_agrees_with_the_sum_over_pairs(sizes: tuple[int, int], seed: int) -> None:
    """Whatever the number of samples, of either set."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (3 * torch.randn(size, 4, generator=generator, dtype=torch.float64) for size in sizes)
    expected = by_pairs(first.tolist(), second.tolist())
    assert expected == pytest.approx(mmd2(first, second, BANDWIDTHS).item(), rel=1e-12)


def test_the_bits_are_those_of_torchs_own_operations() -> None:
    """Value and gradients of features that go into a second loss too; a set of its own gradient, and one without."""
    chance = torch.Generator().manual_seed(3)
    x, weight, other = (torch.randn(shape, generator=chance) for shape in ((32, 20), (20, 50), (32, 50)))

    def closeness(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        squares = (a[:, None] - b[None]).square().sum(dim=2)
        return torch.stack([torch.exp(squares / (-2 * width)) for width in BANDWIDTHS]).sum(dim=0)

    def by_torch(a: torch.Tensor, b: torch.Tensor, _: object) -> torch.Tensor:
        return closeness(a, a).mean() + closeness(b, b).mean() - 2 * closeness(a, b).mean()

    def differentiate(square: object, moves: bool) -> list[torch.Tensor]:
        moving = [weight.clone().requires_grad_(), other.clone().requires_grad_()]
        features = torch.relu(x @ moving[0])
        loss = features.square().mean() + 5 * square(features, moving[1] if moves else other, BANDWIDTHS)
        slopes = torch.autograd.grad(loss, moving if moves else moving[:1])
        return [loss.detach(), *slopes]

    for moves in (False, True):
        ours, torchs = (differentiate(one, moves) for one in (mmd2, by_torch))
        assert all(torch.equal(one, another) for one, another in zip(ours, torchs, strict=True))


def test_each_bandwidth_adds_its_kernel() -> None:
    """Sets of one sample each, 2 apart: 2 − 2 exp(−4 / 2w) for each w."""
    one, other = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    assert 2 - 2 * math.exp(-2) == pytest.approx(mmd2(one, other, (1.0,)).item())
    expected = 4 - 2 * math.exp(-2) - 2 * math.exp(-0.5)
    assert expected == pytest.approx(mmd2(one, other, (1.0, 4.0)).item())
