"""How far a model is from another one, and in which direction it is pulled."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.learning.proximal import distance, square_distance

torch.set_num_threads(1)

ZERO = {"weight": torch.zeros(1, 2), "bias": torch.zeros(1)}


def build_layer() -> nn.Linear:
    """Three numbers: 3, 4 and 12."""
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0]]))
        layer.bias.fill_(12.0)
    return layer


def test_squares_of_all_differences_are_summed() -> None:
    """9 + 16 + 144 = 169, and 13 is its root."""
    assert (169.0, 13.0) == (square_distance(build_layer(), ZERO).item(), distance(build_layer(), ZERO))


def test_the_pull_is_twice_the_difference() -> None:
    """It points back to the reference, which itself is not moved, and is nothing where the two are equal."""
    layer = build_layer()
    square_distance(layer, {"weight": torch.tensor([[3.0, 1.0]])}).backward()
    assert [0.0, 6.0] == layer.weight.grad[0].tolist()
    assert layer.bias.grad is None


def test_equal_models_have_a_gradient_of_zero() -> None:
    """The root would have none there: the first step of a round would be no number."""
    layer = build_layer()
    square_distance(
        layer, {name: value.detach().clone() for name, value in layer.named_parameters()}
    ).backward()
    assert [0.0, 0.0] == layer.weight.grad[0].tolist()


def test_the_bits_are_those_of_torchs_own_operations() -> None:
    """Value and gradients, of both models, and beside another gradient."""
    chance = torch.Generator().manual_seed(3)
    own, other = (nn.Linear(300, 70) for _ in range(2))
    with torch.no_grad():
        for value in (*own.parameters(), *other.parameters()):
            value.normal_(generator=chance)
    moving = [*own.parameters(), *other.parameters()]

    def differentiate(square: torch.Tensor) -> list[torch.Tensor]:
        loss = 0.0123 / 2 * square + sum(value.square().sum() for value in moving)
        return [loss.detach(), *torch.autograd.grad(loss, moving)]

    ours = differentiate(square_distance(own, dict(other.named_parameters())))
    gaps = [(a - b).square().sum() for a, b in zip(own.parameters(), other.parameters(), strict=True)]
    torchs = differentiate(torch.stack(gaps).sum())
    assert all(torch.equal(one, another) for one, another in zip(ours, torchs, strict=True))


def test_nothing_is_held_for_the_way_back_but_the_models() -> None:
    """The differences would be one more model in memory until the gradient is taken."""
    layer, held = build_layer(), list[int]()
    known = {value.data_ptr() for value in (*layer.parameters(), *ZERO.values())}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda saved: held.append(saved.data_ptr()), lambda packed: packed
    ):
        square_distance(layer, ZERO)
    assert known == set(held)


def test_a_name_that_is_no_parameter_is_an_error() -> None:
    """Rather than a pull towards nothing."""
    with pytest.raises(KeyError, match="running_mean"):
        square_distance(nn.BatchNorm1d(2), {"running_mean": torch.zeros(2)})
