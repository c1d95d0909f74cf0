"""Takes a batch through the network in parts and adds their gradients, where memory does not hold all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

Slopes: TypeAlias = "list[Tensor | None]"
"""The gradient by each parameter; None by one that the loss does not depend on."""
Differentiate: TypeAlias = "Callable[[Tensor, Tensor], tuple[Tensor, Slopes]]"


def in_parts(differentiate: Differentiate, x: Tensor, y: Tensor, parts: int) -> tuple[Tensor, Slopes]:
    """The loss and gradient of a batch, as the sum of its parts, each weighted by its share of the samples: the same
    number and gradient for a loss that is a mean over samples, with the memory of one part.
    """
    if parts == 1 or len(y) == 1:
        return differentiate(x, y)
    value = torch.zeros((), device=x.device)
    slopes: Slopes = []
    for part_x, part_y in _cut(x, y, parts):
        share = len(part_y) / len(y)
        part, own = differentiate(part_x, part_y)
        value = value + share * part.detach()
        slopes = [
            _add(total, slope, share) for total, slope in zip(slopes or [None] * len(own), own, strict=True)
        ]
    return value, slopes


def _cut(x: Tensor, y: Tensor, parts: int) -> Iterator[tuple[Tensor, Tensor]]:
    size = -(-len(y) // parts)
    for start in range(0, len(y), size):
        yield x[start : start + size], y[start : start + size]


def _add(total: Tensor | None, slope: Tensor | None, share: float) -> Tensor | None:
    if slope is None:
        return total
    return share * slope if total is None else total.add_(slope, alpha=share)
