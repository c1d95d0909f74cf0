"""The bytes of many tensors in a row: small ones together, for a call on each costs more than a copy of them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import torch
from torch import Tensor

from pfl_common.tensors.mapped import BLOCK

SMALL = 1 << 14
"""Numbers of a tensor that is copied to be together with others; a larger one is taken as it lies."""


def as_row(tensor: Tensor) -> Tensor:
    """Its numbers in a row; it is one already if that is its shape, which to find out takes less than the call."""
    return tensor if tensor.dim() == 1 else tensor.reshape(-1)


def iterate_bytes(values: Iterable[Tensor]) -> Iterator[memoryview]:
    """The bytes of tensors, in order and in as few pieces as that is worth. A piece may look into a tensor's own
    memory: it is read before anything else is done with that.
    """
    for kind, group in groupby(values, key=_kind):
        if kind is None:
            yield from (_bytes_of(tensor) for tensor in group)
            continue
        for part in _parts(group):
            with torch.no_grad():
                together = torch.cat(part)
            yield _bytes_of(together)


def _kind(value: Tensor) -> tuple[torch.dtype, torch.device] | None:
    """What tensors that are taken together have in common; None of a large one."""
    return (value.dtype, value.device) if value.numel() < SMALL else None


def _parts(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Together no more than a block at a time, however many there are."""
    part, held = list[Tensor](), 0
    last: Tensor | None = None
    for tensor in tensors:
        if held > BLOCK:
            yield part
            part, held = [], 0
        # A site's weight is one tensor under the name of each that it weighs.
        part.append(part[-1] if part and tensor is last else _flatten(tensor))
        last = tensor
        held += tensor.numel()
    yield part


def _flatten(tensor: Tensor) -> Tensor:
    flat = as_row(tensor)
    # Truths that are joined become 0 and 1, whatever byte one was.
    return flat.view(torch.uint8) if flat.dtype is torch.bool else flat


def _bytes_of(value: Tensor) -> memoryview:
    content: memoryview = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().data
    return content
