"""One norm of several tensors, and which way it falls."""

from __future__ import annotations

import torch
from torch.nn.utils import parameters_to_vector

from pfl_common.learning.joint_norm import joint_norm

torch.set_num_threads(1)


def test_it_is_one_root_of_all_squares() -> None:
    """3, 4 and 12 give 13, and each is pulled by its share of it."""
    values = [torch.tensor([[3.0, 4.0]], requires_grad=True), torch.tensor([12.0], requires_grad=True)]
    norm = joint_norm(values)
    norm.backward()
    assert 13.0 == norm.item()
    torch.testing.assert_close(values[0].grad, torch.tensor([[3.0, 4.0]]) / 13)
    torch.testing.assert_close(values[1].grad, torch.tensor([12.0]) / 13)


def test_nothing_is_pulled_nowhere() -> None:
    """At 0 the root has no slope: it is taken for 0, as torch does."""
    value = torch.zeros(3, requires_grad=True)
    joint_norm([value]).backward()
    assert [0.0] * 3 == value.grad.tolist()


def test_the_bits_are_those_of_torchs_own_operations() -> None:
    """Value and gradients, also where a second gradient is added."""
    chance = torch.Generator().manual_seed(3)
    first = [torch.randn(shape, generator=chance) for shape in ((300, 70), (70,), (5, 5))]

    def differentiate(norm: object) -> list[torch.Tensor]:
        values = [value.clone().requires_grad_() for value in first]
        loss = 0.3 * norm(values) + sum(value.square().sum() for value in values)
        return [loss.detach(), *torch.autograd.grad(loss, values)]

    ours, torchs = (
        differentiate(one) for one in (joint_norm, lambda some: parameters_to_vector(some).norm())
    )
    assert all(torch.equal(one, other) for one, other in zip(ours, torchs, strict=True))
