"""A batch in parts has the loss and the gradient of the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pfl_common.learning.arithmetic import Arithmetic, known


def test_exact_numbers_are_equal_to_the_bit() -> None:
    """Where no sum is rounded, halves and whole are the same; an odd batch is weighted by its samples."""
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return (layer(x).squeeze(1) - y).square().mean()

    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 1.0], [2.0, 8.0]]), torch.tensor([1.0, 0.0, 2.0, 4.0])
    weights = [layer.weight]
    value, whole = Arithmetic().gradients(loss, weights, x, y)
    total, halves = Arithmetic(parts=2).gradients(loss, weights, x, y)
    assert (value.item(), known(whole)[0].tolist()) == (total.item(), known(halves)[0].tolist())
    _, odd = Arithmetic(parts=2).gradients(loss, weights, x[:3], y[:3])
    assert known(odd)[0].allclose(known(Arithmetic().gradients(loss, weights, x[:3], y[:3])[1])[0])
    _, single = Arithmetic(parts=2).gradients(loss, weights, x[:1], y[:1])
    assert known(single)[0].equal(known(Arithmetic().gradients(loss, weights, x[:1], y[:1])[1])[0])


def test_half_of_the_samples_pass_at_a_time() -> None:
    """That is what needs less memory."""
    sizes: list[int] = []
    weight = torch.ones(1, requires_grad=True)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        sizes.append(len(x))
        return (x * weight).mean()

    Arithmetic(parts=2).gradients(loss, [weight], torch.ones(7, 1), torch.ones(7))
    assert [4, 3] == sizes
