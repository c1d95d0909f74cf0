"""SGD with momentum and weight decay, step by step.

The numbers are those of `torch.optim.SGD` to the bit, which a test compares. That one loads torch's compiler when it is
first used: a second of every trainer's start, and of every rehearsal's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias  # Any: groups hold tensors and numbers under one roof

import torch
from torch import Tensor, nn

Groups: TypeAlias = Iterable[nn.Parameter] | Iterable[Mapping[str, Any]]
"""What is trained: parameters, or groups of them (`{"params": …, "lr": …, "weight_decay": …}`), of which each may have
numbers of its own instead of the settings'.
"""


@dataclass
class _Group:
    """Parameters that move alike."""

    parameters: list[nn.Parameter]
    lr: float
    momentum: float
    weight_decay: float
    velocities: dict[int, Tensor] = field(default_factory=dict)
    """By the parameter's place; of one that has moved before."""

    def move(self, slopes: Sequence[Tensor | None]) -> None:
        known = [place for place, slope in enumerate(slopes) if slope is not None]
        moved: list[Tensor] = [self.parameters[place] for place in known]
        along = [slope for slope in slopes if slope is not None]
        if not known:
            return
        if self.weight_decay:
            along = list(torch._foreach_add(along, moved, alpha=self.weight_decay))
        if self.momentum:
            along = self._carry(known, along)
        torch._foreach_add_(moved, along, alpha=-self.lr)

    def _carry(self, known: Sequence[int], along: Sequence[Tensor]) -> list[Tensor]:
        """What is left of earlier steps, with this one; the first step is its own."""
        old = [(place, slope) for place, slope in zip(known, along, strict=True) if place in self.velocities]
        if old:
            carried = [self.velocities[place] for place, _ in old]
            torch._foreach_mul_(carried, self.momentum)
            torch._foreach_add_(carried, [slope for _, slope in old])
        for place, slope in zip(known, along, strict=True):
            if place not in self.velocities:
                self.velocities[place] = slope.detach().clone()
        return [self.velocities[place] for place in known]


class Descent:
    """Moves parameters against their gradients; its memory begins empty."""

    def __init__(self, chosen: Groups, *, lr: float, momentum: float, weight_decay: float) -> None:
        usual = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        self._groups: list[_Group] = []
        for one in _in_groups(chosen):
            own = {name: value for name, value in one.items() if name != "params"}
            self._groups.append(_Group(list(one["params"]), **usual | own))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All that it moves, in the order in which `step` wants their gradients."""
        return [parameter for group in self._groups for parameter in group.parameters]

    @torch.no_grad()
    def step(self, slopes: Sequence[Tensor | None]) -> None:
        """Move each parameter by its gradient; one without a gradient stays."""
        begin = 0
        for group in self._groups:
            end = begin + len(group.parameters)
            group.move(slopes[begin:end])
            begin = end


def _in_groups(chosen: Groups) -> list[Mapping[str, Any]]:
    listed: list[Any] = list(chosen)
    return listed if listed and isinstance(listed[0], Mapping) else [{"params": listed}]
