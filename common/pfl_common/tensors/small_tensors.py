"""The bytes of many tensors in a row: small ones together, for a call on each costs more than a copy of them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
            yield from (bytes_of(tensor) for tensor in group)
        else:
            yield from (bytes_of(join(part)) for part in _parts(group))


@torch.no_grad()
def join(tensors: Sequence[Tensor]) -> Tensor:
    """The numbers of tensors of one type in a row, which of a single one may be its own memory."""
    rows, last = list[Tensor](), None
    for tensor in tensors:
        # A site's weight is one tensor under the name of each that it weighs.
        rows.append(rows[-1] if tensor is last else _as_row(tensor))
        last = tensor
    if len(rows) == 1:
        return rows[0].detach()
    if rows[0].dtype is torch.bool:
        # Truths that are joined become 0 and 1, whatever byte one was.
        return torch.cat([row.view(torch.uint8) for row in rows]).view(torch.bool)
    return torch.cat(rows)


def bytes_of(value: Tensor) -> memoryview:
    """A tensor's bytes, in its own memory where they lie there in order."""
    content: memoryview = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().data
    return content


def _as_row(tensor: Tensor) -> Tensor:
    # To see that it is one already takes less than the call.
    return tensor if tensor.dim() == 1 else tensor.reshape(-1)


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
        part.append(tensor)
        held += tensor.numel()
    yield part
