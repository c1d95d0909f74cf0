"""A model's parameters as they came, for methods that compare with them what they have trained.

A download lies in memory until its task is done, and nobody writes to it: it is looked at and not copied.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from pfl_common.tensors.state import State


def as_received(module: nn.Module, came: Mapping[str, Tensor]) -> State:
    """The parameters of a module that has just taken over what came; those that did not come are copied."""
    own = {name: value.detach() for name, value in module.named_parameters()}
    return State({name: came[name] if name in came else value.clone() for name, value in own.items()})
