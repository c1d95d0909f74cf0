"""Masks of the entries of a model that matter to a site.

A mask has one bit for each entry of each parameter. A site's masks are packed, eight bits to a byte, into one
vector sorted by the parameters' names; whatever pads the last byte is 0 and counts nowhere.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pfl_common.learning.arithmetic import in_double
from pfl_common.tensors.state import flat

Masks: TypeAlias = Mapping[str, Tensor]
Selection: TypeAlias = Literal["sensitivity", "random", "reverse"]

NO_MOVEMENT = 1e-10
"""A threshold this low says that not enough entries have moved to fill the share."""
NOTHING = 1e-20
"""Sensitivities this small are taken for none at all."""

_log = logging.getLogger(__name__)


def mark(scores: Masks, selection: Selection, share: float, generator: torch.Generator) -> dict[str, Tensor]:
    """The critical entries of each parameter: the most sensitive, a random share, or the least sensitive."""
    masks = {}
    for name, found in sorted(scores.items()):
        if selection == "random":
            masks[name] = drawn(found, share, generator)
        elif selection == "reverse":
            masks[name] = least_sensitive(found, share)
        else:
            masks[name] = most_sensitive(found, share)
            if masks[name].any() and not (found > NOTHING).any():
                _log.warning("%s did not move in training: what is critical in it is rounding", name)
    return masks


def sensitivity(before: Tensor, after: Tensor) -> Tensor:
    """The importance of each entry in training: |(after - before) * after| (FedCAC, Eq. 5)."""
    return ((after - before) * after).abs()


def most_sensitive(scores: Tensor, share: float) -> Tensor:
    """Mark the floor(share * p) highest of p scores and all that tie with the last of them (FedCAC, Eq. 6).

    Where fewer entries than that have moved, all that moved at all are marked; where nothing is above next to
    nothing, the highest of it, which is all entries if they are all 0.
    """
    count = math.floor(share * scores.numel())
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    threshold = scores.flatten().kthvalue(scores.numel() - count + 1).values
    if threshold <= NO_MOVEMENT:
        moved = scores[scores > NOTHING]
        threshold = moved.min() if len(moved) else threshold
    return scores >= threshold


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
    bits = flat(masks).to(torch.uint8)
    bytewise = pad(bits, (0, -len(bits) % 8)).view(-1, 8)
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (bytewise << places).sum(dim=1, dtype=torch.uint8)


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
    return float(in_double(flat(masks)).mean())


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
