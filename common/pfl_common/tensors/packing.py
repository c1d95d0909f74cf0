"""Packs numbers into the bytes of a form and unpacks them, some whole blocks of a tensor at a time.

int8: a block's scale is its largest magnitude / 127, each number is divided by it and rounded, to the nearest (of two
as near to the even one) or up or down by chance. topk: of equal magnitudes the first is taken.

The bytes come from a peer: there is one way to write a block, and every other is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pfl_common.errors import Refused
from pfl_common.spec.encoded_form import SCALE, Form

LARGEST = 127
"""Of int8: -128 would be a number that has no counterpart."""
CHUNK = 1 << 16
"""Numbers packed at a time: whole blocks of every form, a quarter of a megabyte."""


def pack(form: Form, numbers: Tensor, chance: torch.Generator | None = None) -> Tensor:
    """The bytes of some float32 numbers in a row, which begin where a block does; by `chance`, if it is given."""
    if form.kind == "bf16":
        return numbers.to(torch.bfloat16).view(torch.uint8)
    if form.kind == "int8":
        blocks = _fill_up(numbers, form.block).view(-1, form.block)
        return _pack_int8(blocks, chance).reshape(-1)[: form.size(len(numbers))]
    end = len(numbers) - len(numbers) % form.block
    parts = numbers[:end].view(-1, form.block), numbers[end:].view(1, -1)
    return torch.cat([_pack_topk(part, form).reshape(-1) for part in parts if part.numel()])


def unpack(form: Form, raw: Tensor, count: int) -> Tensor:
    """The numbers of some bytes, `count` of them, which begin where a block does."""
    if form.kind == "bf16":
        return _aligned(raw, torch.bfloat16).float()
    if form.kind == "int8":
        width = SCALE + form.block
        return _unpack_int8(_fill_up(raw, width).view(-1, width)).reshape(-1)[:count]
    size, rest = form.block_size(form.block), count % form.block
    end = len(raw) - (form.block_size(rest) if rest else 0)
    parts = (raw[:end].view(-1, size), form.block), (raw[end:].view(1, -1), rest)
    return torch.cat([_unpack_topk(part, width).reshape(-1) for part, width in parts if part.numel()])


def _fill_up(numbers: Tensor, size: int) -> Tensor:
    """The same with zeros behind them, so that blocks of this size are full."""
    return torch.nn.functional.pad(numbers, (0, -len(numbers) % size))


def _pack_int8(blocks: Tensor, chance: torch.Generator | None) -> Tensor:
    scales = blocks.abs().amax(dim=1, keepdim=True) / LARGEST
    steps = blocks / torch.where(scales > 0, scales, 1.0)
    if chance is None:
        steps.round_()
    else:
        steps.add_(torch.rand(steps.shape, generator=chance)).floor_()
    raw = torch.empty(len(blocks), SCALE + blocks.shape[1], dtype=torch.uint8)
    raw[:, :SCALE] = scales.view(torch.uint8)
    raw[:, SCALE:] = steps.clamp_(-LARGEST, LARGEST).to(torch.int8).view(torch.uint8)
    return raw


def _unpack_int8(raw: Tensor) -> Tensor:
    scales = raw[:, :SCALE].contiguous().view(torch.float32)
    # Compared so that NaN is refused too.
    if not bool(((scales >= 0) & (scales < torch.inf)).all()):
        raise Refused("encoding", "an int8 block has a scale that is negative, infinite or no number")
    steps = raw[:, SCALE:].view(torch.int8)
    if steps.numel() and int(steps.min()) < -LARGEST:
        raise Refused("encoding", f"an int8 block holds {-LARGEST - 1}; expected: {-LARGEST} to {LARGEST}")
    return steps.float().mul_(scales)


def _pack_topk(blocks: Tensor, form: Form) -> Tensor:
    taken, sizes = form.taken(blocks.shape[1]), blocks.abs()
    # Which of equal ones `topk` takes it does not say; what the smallest of them is, it does.
    smallest = sizes.topk(taken, dim=1).values[:, -1:]
    larger, equal = sizes > smallest, sizes == smallest
    lacking = taken - larger.sum(dim=1, keepdim=True)
    chosen = larger | (equal & (equal.cumsum(dim=1) <= lacking))
    places = chosen.nonzero()[:, 1].view(len(blocks), taken)
    values = blocks.gather(1, places).to(torch.bfloat16)
    return torch.cat([places.to(torch.int16).view(torch.uint8), values.view(torch.uint8)], dim=1)


def _unpack_topk(raw: Tensor, size: int) -> Tensor:
    taken = raw.shape[1] // 4
    places = raw[:, : 2 * taken].contiguous().view(torch.int16).long()
    inside = bool((places[:, 0] >= 0).all() and (places[:, -1] < size).all())
    if not (inside and bool((places.diff(dim=1) > 0).all())):
        raise Refused(
            "encoding", f"a topk block names places that are not in order from 0 to {size - 1}, each once"
        )
    values = raw[:, 2 * taken :].contiguous().view(torch.bfloat16).float()
    return torch.zeros(len(raw), size).scatter_(1, places, values)


def _aligned(raw: Tensor, dtype: torch.dtype) -> Tensor:
    whole = raw if raw.data_ptr() % dtype.itemsize == 0 else raw.clone()
    return whole.view(dtype)
