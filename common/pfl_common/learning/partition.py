"""Selects the names of a module that travel, by a tensor's place and its layer's type, never by a substring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from pfl_common.learning.freezing import find_frozen, stands_still

BnPolicy = Literal["share_all", "local_stats", "local_bn"]
"""share_all: scale, shift and statistics are averaged. local_stats: the statistics stay. local_bn: all stays."""


def inside(module: nn.Module, *prefixes: str) -> set[str]:
    """Names of all parameters and buffers of the sub-modules (or single tensors) named."""
    return {
        name
        for name in module.state_dict(keep_vars=True)
        if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
    }


def of_type(module: nn.Module, *kinds: type[nn.Module]) -> set[str]:
    """Names of all parameters and buffers owned by layers of the given types, whatever the layers are called."""
    names: set[str] = set()
    for owner, layer in module.named_modules():
        if isinstance(layer, kinds):
            own = [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]
            names |= {f"{owner}.{name}" if owner else name for name, _ in own}
    return names


def floating(module: nn.Module) -> set[str]:
    """Names of everything that can be averaged: integer counters never travel, and frozen tensors have travelled."""
    # As they are: to cut a hundred loose, only to look at their type, takes longer than all the rest.
    every = {name for name, value in module.state_dict(keep_vars=True).items() if value.is_floating_point()}
    return every - find_frozen(module).keys()


def running_statistics(module: nn.Module) -> set[str]:
    """Names of the running means and variances of every batch norm."""
    return of_type(module, _BatchNorm) & {name for name, _ in module.named_buffers()}


def running_variances(module: nn.Module) -> set[str]:
    """Names of the running variances alone."""
    return {name for name in running_statistics(module) if name.rpartition(".")[2] == "running_var"}


def held_back(module: nn.Module, policy: BnPolicy) -> set[str]:
    """The names that the batch-norm policy keeps at the site."""
    if policy == "share_all":
        return set()
    return running_statistics(module) if policy == "local_stats" else of_type(module, _BatchNorm)


def travelling(module: nn.Module, policy: BnPolicy, prefixes: Iterable[str] | None = None) -> set[str]:
    """Floating-point names below the prefixes (all, if none are given), less what the policy keeps at home."""
    within = floating(module) if prefixes is None else floating(module) & inside(module, *prefixes)
    return within - held_back(module, policy)


def has_batch_norm(module: nn.Module) -> bool:
    """Whether any layer normalises over the batch; such a model cannot train on a batch of one sample. One whose
    statistics are frozen does not.
    """
    return any(isinstance(layer, _BatchNorm) and not stands_still(layer) for layer in module.modules())
