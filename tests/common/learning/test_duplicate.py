"""A duplicate is what a deep copy would be, and shares nothing with its original that either could change."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from pfl_common.learning.duplicate import duplicate


class Odd(nn.Module):
    """Whatever a method may make of a module: tensors that share memory, tied parameters, hooks, plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
        self.tied = self.layers[2]
        self.layers[0].weight.requires_grad_(False)
        self.register_buffer("row", torch.arange(6.0))
        self.register_buffer("part", self.row[2:4])
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())
        self.register_buffer("none", torch.zeros(0))
        self.register_buffer("unset", None)
        self.note, self.settings = {"list": [1]}, ("shared",)
        self.plain = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x))


def told(module: nn.Module) -> dict[str, tuple[object, ...]]:
    """Everything of the tensors of a module that can be seen."""
    every = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: (type(t), t.tolist(), t.dtype, t.stride(), t.requires_grad, t.is_leaf)
        for name, t in every.items()
    }


def test_it_is_a_deep_copy() -> None:
    """The same names, numbers, types, strides; what was one object, or one memory, is one again."""
    made, deep = duplicate(odd := Odd()), copy.deepcopy(odd)
    assert told(deep) == told(made) == told(odd)
    assert made.tied is made.layers[2]
    made.row[2] = 70
    assert (70, 2) == (made.part[0], odd.part[0]), "a part of its own row"
    assert {"list": [1]} == made.note
    assert made.note["list"] is not odd.note["list"]
    x = torch.ones(1, 1, 3, 3)
    assert torch.equal(deep.eval()(x), duplicate(odd).eval()(x))


def test_nothing_is_shared() -> None:
    """Neither tensors nor hooks: what is done to one leaves the other as it was."""
    odd = Odd()
    made = duplicate(odd)
    before = told(odd)
    with torch.no_grad():
        for tensor in (*made.parameters(), *made.buffers()):
            tensor.add_(1)
    made.layers[0].register_forward_hook(lambda *_: pytest.fail("of the copy alone"))
    made.plain += 1
    assert (before, [1.0, 1.0]) == (told(odd), odd.plain.tolist())
    odd.eval()(torch.ones(1, 1, 3, 3))


def test_what_never_changes_may_be_shared() -> None:
    """If the caller says so."""
    odd = Odd()
    assert duplicate(odd, odd.note).note is odd.note


def test_hooks_go_along() -> None:
    """A layer that stands still does so by a hook."""
    odd, called = Odd(), list[int]()
    odd.layers[0].register_forward_pre_hook(lambda *_: called.append(1))
    duplicate(odd).eval()(torch.ones(1, 1, 3, 3))
    assert [1] == called
