"""The sum of many sites' updates: what federated learning is made of.

The law: adding the same updates gives the same bits, whoever adds them. Inside everything is float64; a weight is
an integer or a float32 and a value a float32, so each product is exact and only the additions round. Their order is
fixed by the caller (site order), so the order of arrival cannot matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pfl_common.tensors import State

BLOCK = 1 << 18
"""Numbers converted at a time: a block of float64 stays in the cache, a whole model does not."""


@dataclass(frozen=True)
class Weighted:
    """A value and how much it counts: one number, one per row (class) or one per element (mask)."""

    value: Tensor
    weight: Tensor

    def __post_init__(self) -> None:
        if self.weight.dtype.is_floating_point and self.weight.dtype != torch.float32:
            raise TypeError(f"weights are integers or float32, got {self.weight.dtype}")
        if not self.value.dtype.is_floating_point:
            raise TypeError(f"summed values are floating point, got {self.value.dtype}")
        rows, shape = tuple(self.value.shape[:1]), tuple(self.value.shape)
        if tuple(self.weight.shape) not in {(), rows, shape}:
            raise ValueError(
                f"a weight is one number, one per row or one per element; value {shape} got {tuple(self.weight.shape)}"
            )


class Sum:
    """Totals of weight x value and of the weights, per name."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}

    def add(self, terms: Mapping[str, Weighted]) -> None:
        """Add one site's terms; a name may be new, its shapes may not change."""
        for name in sorted(terms):
            term = terms[name]
            if name not in self._totals:
                self._totals[name] = torch.zeros(term.value.shape, dtype=torch.float64)
                self._weights[name] = torch.zeros(term.weight.shape, dtype=torch.float64)
            self._weights[name] += term.weight.to(torch.float64)
            _accumulate(self._totals[name], term)

    def mean(self, otherwise: State) -> State:
        """Totals over weights under the names of `otherwise`, which also fills in where nothing was counted."""
        result = {name: self._mean_of(name, value) for name, value in otherwise.items()}
        return State(result, kept=otherwise.kept)

    def _mean_of(self, name: str, otherwise: Tensor) -> Tensor:
        if name not in self._totals:
            return otherwise
        total = self._totals[name]
        weight = _aligned(self._weights[name], total)
        counted = (weight != 0).expand_as(total)
        quotient = (total / torch.where(weight != 0, weight, 1.0)).to(otherwise.dtype)
        return torch.where(counted, quotient, otherwise)

    @property
    def totals(self) -> State:
        """Weight x value, summed, in float64."""
        return State(self._totals)

    @property
    def weights(self) -> State:
        """The weights, summed, in float64."""
        return State(self._weights)


def _accumulate(total: Tensor, term: Weighted) -> None:
    if term.weight.dim() == 0:
        _accumulate_blocks(total.view(-1), term.value.detach().reshape(-1), term.weight)
    else:
        # One row at most is converted at a time beyond the block, so memory stays flat for long tensors too.
        rows = term.value.detach().reshape(term.value.shape[0], -1)
        weights = term.weight.reshape(term.weight.shape[0], -1)
        sums = total.view(rows.shape)
        step = max(1, BLOCK // max(1, rows.shape[1]))
        for start in range(0, rows.shape[0], step):
            part = slice(start, start + step)
            sums[part] += rows[part].to(torch.float64) * weights[part].to(torch.float64)


def _accumulate_blocks(total: Tensor, value: Tensor, weight: Tensor) -> None:
    buffer = torch.empty(min(BLOCK, value.numel()), dtype=torch.float64)
    for start in range(0, value.numel(), BLOCK):
        part = value[start : start + BLOCK]
        block = buffer[: part.numel()]
        block.copy_(part)
        total[start : start + BLOCK].add_(block, alpha=weight.item())


def _aligned(weight: Tensor, total: Tensor) -> Tensor:
    """A weight per row gets trailing dimensions, so that it meets its rows and not its columns."""
    if weight.dim() in (0, total.dim()):
        return weight
    return weight.reshape(weight.shape + (1,) * (total.dim() - weight.dim()))
