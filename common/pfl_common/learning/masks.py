"""Masks of the entries of a model that matter to a site.

A mask has one bit for each entry of each parameter. A site's masks are packed, eight bits to a byte, into one
vector sorted by the parameters' names; whatever pads the last byte is 0 and counts nowhere.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

Masks: TypeAlias = Mapping[str, Tensor]
Selection: TypeAlias = Literal["sensitivity", "random", "reverse"]

NO_MOVEMENT = 1e-10
"""A threshold this low says that not enough entries have moved to fill the share."""
NOTHING = 1e-20
"""Sensitivities this small are taken for none at all."""

_log = logging.getLogger(__name__)


class Marks(NamedTuple):
    """What is critical in a model."""

    packed: Tensor
    shares: dict[str, float]
    """The fraction of each parameter's entries that are marked."""
    density: float
    """Of all entries."""


def find(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    selection: Selection,
    share: float,
    generator: torch.Generator,
) -> Marks:
    """Mark parameters by how far they went in training."""
    shares = dict[str, float]()

    def each() -> Iterator[Tensor]:
        # One after the other: the scores of all together would be one more model in memory.
        for name in sorted(after):
            marked = mark(name, sensitivity(before[name], after[name]), selection, share, generator)
            shares[name] = density({name: marked})
            yield marked

    packed = pack_each(each())
    return Marks(packed, shares, count_marks(packed) / sum(value.numel() for value in after.values()))


def mark(name: str, scores: Tensor, selection: Selection, share: float, generator: torch.Generator) -> Tensor:
    """The critical entries of a parameter: the most sensitive, a random share, or the least sensitive."""
    if selection == "random":
        return drawn(scores, share, generator)
    if selection == "reverse":
        return least_sensitive(scores, share)
    marked = most_sensitive(scores, share)
    if marked.any() and not (scores > NOTHING).any():
        _log.warning("%s did not move in training: what is critical in it is rounding", name)
    return marked


def sensitivity(before: Tensor, after: Tensor) -> Tensor:
    """The importance of each entry in training: |(after - before) * after| (FedCAC, Eq. 5)."""
    return (after - before).mul_(after).abs_()


def most_sensitive(scores: Tensor, share: float) -> Tensor:
    """Mark the floor(share * p) highest of p scores and all that tie with the last of them (FedCAC, Eq. 6).

    Where fewer entries than that have moved, all that moved at all are marked; where nothing is above next to
    nothing, the highest of it, which is all entries if they are all 0.
    """
    count = math.floor(share * scores.numel())
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    threshold = _nth_lowest(scores, scores.numel() - count)
    if threshold <= NO_MOVEMENT:
        moved = scores > NOTHING
        # Taken out by their places they would need three times the memory.
        threshold = scores.where(moved, torch.inf).amin() if moved.any() else threshold
    return scores >= threshold


def _nth_lowest(scores: Tensor, place: int) -> Tensor:
    """The score at that place of all scores in their order, 0 for the lowest."""
    if scores.device.type == "cpu" and scores.dtype != torch.bfloat16:  # which numpy does not know
        # kthvalue finds where it lies as well, which takes twice the memory of the scores themselves.
        ordered = np.partition(scores.numpy().ravel(), place)
        return torch.tensor(ordered[place], dtype=scores.dtype)
    return scores.flatten().kthvalue(place + 1).values


def least_sensitive(scores: Tensor, share: float) -> Tensor:
    """Mark the floor(share * p) lowest of p scores, exactly; of equal ones the first."""
    order = scores.flatten().argsort(stable=True)
    return _marked(order[: math.floor(share * scores.numel())], scores)


def drawn(scores: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Mark floor(share * p) of p entries by chance, whatever their scores."""
    order = torch.randperm(scores.numel(), generator=generator)
    return _marked(order[: math.floor(share * scores.numel())].to(scores.device), scores)


def pack(masks: Masks) -> Tensor:
    """Write masks as one vector of bytes, sorted by name, the first entry in the lowest bit."""
    return pack_each(masks[name] for name in sorted(masks))


def pack_each(masks: Iterable[Tensor]) -> Tensor:
    """The same of masks that come in the order of their names, one at a time: of each its bits alone are held."""
    packed, rest = list[Tensor](), torch.zeros(0, dtype=torch.uint8)
    for mask in masks:
        bits = torch.cat([rest.to(mask.device), mask.reshape(-1).to(torch.uint8)])
        whole = len(bits) - len(bits) % 8
        packed.append(_pack_bytes(bits[:whole]))
        rest = bits[whole:].clone()
    return torch.cat([*packed, _pack_bytes(pad(rest, (0, -len(rest) % 8)))])


def _pack_bytes(bits: Tensor) -> Tensor:
    """Eight of them to a byte."""
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (bits.view(-1, 8) << places).sum(dim=1, dtype=torch.uint8)


def unpack(packed: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read masks for tensors of these names and shapes back from their bytes."""
    places = torch.arange(8, dtype=torch.uint8, device=packed.device)
    bits = ((packed[:, None] >> places) & 1).view(-1).bool()
    names = sorted(like)
    sizes = [like[name].numel() for name in names]
    parts = torch.split(bits[: sum(sizes)], sizes)
    return {name: part.view(like[name].shape) for name, part in zip(names, parts, strict=True)}


def cut_padding(packed: Tensor, entries: int) -> Tensor:
    """A packed mask of so many entries whose padding is 0, whatever its sender put there."""
    cut = packed.clone()
    if entries % 8:
        cut[-1] &= (1 << entries % 8) - 1
    return cut


def density(masks: Masks) -> float:
    """The fraction of entries that are marked."""
    marked = sum(int(mask.count_nonzero()) for mask in masks.values())
    return marked / sum(mask.numel() for mask in masks.values())


def count_marks(packed: Tensor) -> int:
    """The number of entries that a packed mask marks."""
    return count_bits(packed.cpu().numpy())


def jaccard(first: Tensor, second: Tensor) -> float:
    """Entries marked in both packed masks, as a part of those marked in either; 0 where there are none."""
    a, b = first.cpu().numpy(), second.cpu().numpy()
    either = count_bits(a | b)
    return count_bits(a & b) / either if either else 0.0


def count_bits(packed: np.ndarray) -> int:
    """Bits that are set: eight bytes at a time, then those left over."""
    whole = len(packed) - len(packed) % 8
    words, rest = packed[:whole].view(np.uint64), packed[whole:]
    return int(np.bitwise_count(words).sum(dtype=np.int64)) + int(np.bitwise_count(rest).sum(dtype=np.int64))


def _marked(places: Tensor, like: Tensor) -> Tensor:
    mask = torch.zeros(like.numel(), dtype=torch.bool, device=like.device)
    mask[places] = True
    return mask.view(like.shape)
