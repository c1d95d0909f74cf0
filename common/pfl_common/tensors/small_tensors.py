"""The bytes of many tensors in a row: small ones together, for a call on each costs more than a copy of them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import torch
from torch import Tensor

from pfl_common.tensors.mapped import BLOCK

SMALL = 1 << 14
"""Numbers of a tensor that is copied to be together with others; a larger one is taken as it lies."""


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
    for tensor in tensors:
        if held > BLOCK:
            yield part
            part, held = [], 0
        flat = tensor.reshape(-1)
        # Truths that are joined become 0 and 1, whatever byte one was.
        part.append(flat.view(torch.uint8) if flat.dtype is torch.bool else flat)
        held += tensor.numel()
    yield part


def _bytes_of(value: Tensor) -> memoryview:
    content: memoryview = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().data
    return content
