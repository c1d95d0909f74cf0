"""Our SGD moves parameters as torch's does, to the bit, and does not load torch's compiler."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pfl_common.learning.descent import Descent

STEPS = 4
ALONE = """
import sys
from torch import nn
from pfl_common.learning.descent import Descent
layer = nn.Linear(3, 2)
layer(__import__("torch").ones(1, 3)).sum().backward()
Descent(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1).step([p.grad for p in layer.parameters()])
assert "torch._dynamo" not in sys.modules
"""


def parameters() -> list[nn.Parameter]:
    """Of several shapes."""
    draw = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((3, 4), (5,), (), (2, 1, 3))]


def slopes(step: int, *, silent: int | None = None) -> list[Tensor | None]:
    """A gradient by each; None by a silent one."""
    draw = torch.Generator().manual_seed(100 + step)
    made = [torch.randn(one.shape, generator=draw) for one in parameters()]
    return [None if place == silent else slope for place, slope in enumerate(made)]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("silent", [None, 0, 2])
def test_it_moves_as_torch_does(momentum: float, weight_decay: float, silent: int | None) -> None:
    """Also one that first has a gradient in a later step, whose memory begins then."""
    ours, theirs = parameters(), parameters()
    words: dict[str, Any] = {"lr": 0.1, "momentum": momentum, "weight_decay": weight_decay}
    descent, optimizer = Descent(ours, **words), torch.optim.SGD(theirs, **words)
    for step in range(STEPS):
        given = slopes(step, silent=silent if step < 2 else None)
        descent.step(given)
        for parameter, slope in zip(theirs, given, strict=True):
            parameter.grad = slope
        optimizer.step()
    assert [True] * 4 == [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]
    assert not torch.equal(ours[0], parameters()[0])


def test_groups_have_numbers_of_their_own() -> None:
    """Rate, momentum and decay; what a group does not say is as usual."""
    ours, theirs = parameters(), parameters()

    def groups(of: list[nn.Parameter]) -> list[dict[str, Any]]:
        own = {"params": of[2:], "lr": 0.5, "momentum": 0.0, "weight_decay": 0.2}
        return [{"params": of[:2]}, own]

    words: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    descent, optimizer = Descent(groups(ours), **words), torch.optim.SGD(groups(theirs), **words)
    assert [id(one) for one in ours] == [id(one) for one in descent.parameters]
    for step in range(STEPS):
        given = slopes(step)
        descent.step(given)
        for parameter, slope in zip(theirs, given, strict=True):
            parameter.grad = slope
        optimizer.step()
    assert [True] * 4 == [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]


def test_gradients_are_left_as_they_are() -> None:
    """Whoever measured them may look at them afterwards."""
    given, kept = slopes(0), slopes(0)
    Descent(parameters(), lr=0.1, momentum=0.9, weight_decay=0.3).step(given)
    assert [True] * 4 == [torch.equal(a, b) for a, b in zip(given, kept, strict=True)]


def test_nothing_to_move() -> None:
    """All of it is frozen."""
    descent = Descent([], lr=0.1, momentum=0.9, weight_decay=0.0)
    assert [] == descent.parameters
    descent.step([])


def test_the_compiler_is_not_loaded() -> None:
    """It takes a second of each trainer's start."""
    subprocess.run([sys.executable, "-c", ALONE], check=True)
