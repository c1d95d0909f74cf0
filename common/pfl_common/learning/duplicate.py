"""Copies a model, as `copy.deepcopy` does, in a fraction of its time.

Most of what a deep copy goes through are empty containers that each layer has a dozen of, settings that never change,
and a general way of copying tensors that may share memory. What is not of these kinds is copied as ever.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)
_CONTAINERS = (OrderedDict, dict, set)


@torch.no_grad()
def duplicate(module: Module, *shared: object) -> Module:
    """A copy that has nothing in common with its original but what is `shared`."""
    memo: dict[int, object] = {id(each): each for each in (None, *shared)}
    layers = [vars(layer) for layer in module.modules()]
    _clone_parameters([each for layer in layers for each in layer["_parameters"].values()], memo)
    _clone_buffers([each for layer in layers for each in layer["_buffers"].values()], memo)
    for layer in layers:
        for part in layer.values():
            if type(part) in _CONTAINERS and not part:
                memo[id(part)] = type(part)()
        _copy_names(layer["_parameters"], memo)
        _copy_names(layer["_buffers"], memo)
    return copy.deepcopy(module, memo)


def _clone_parameters(every: Sequence[nn.Parameter | None], memo: dict[int, object]) -> None:
    plain = {id(each): each for each in every if type(each) is nn.Parameter and each.grad is None}
    for parameter, copied in zip(plain.values(), _clone(list(plain.values())), strict=True):
        memo[id(parameter)] = nn.Parameter(copied, requires_grad=parameter.requires_grad)


def _clone_buffers(every: Sequence[Tensor | None], memo: dict[int, object]) -> None:
    """Only of those whose memory is nobody else's, so that what lies in one memory does so in the copy."""
    buffers = {id(each): each for each in every if each is not None}.values()
    owners = Counter(map(_memory_of, buffers))
    plain = [each for each in buffers if owners[_memory_of(each)] == 1 and _stands_alone(each)]
    memo |= zip(map(id, plain), _clone(plain), strict=True)


def _clone(tensors: list[Tensor]) -> Sequence[Tensor]:
    """In one call: of many small tensors the calls take longer than the copying."""
    return torch._foreach_clone(tensors, memory_format=torch.preserve_format) if tensors else ()


def _copy_names(named: dict[str, Tensor | None], memo: dict[int, object]) -> None:
    """Tensors by their names in a layer, where all of them are copied by now: a deep copy takes name after name."""
    if type(named) is dict and all(id(each) in memo for each in named.values()):
        memo[id(named)] = {name: memo[id(each)] for name, each in named.items()}


def _memory_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.numel() else id(tensor)


def _stands_alone(tensor: Tensor) -> bool:
    """Whether nothing but its numbers has to be copied, and they are all that lie in its memory."""
    plain = (
        type(tensor) is Tensor and not tensor.requires_grad and not vars(tensor) and tensor.is_contiguous()
    )
    return plain and tensor.untyped_storage().nbytes() == tensor.nbytes
