"""Masks of the entries of a model that matter to a site, and the overlap of several sites' masks.

A mask has one bit for each entry of each parameter. A site's masks are packed, eight bits to a byte, into one
vector sorted by the parameters' names; whatever pads the last byte is 0 and counts nowhere.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pfl_common.learning.arithmetic import in_double
from pfl_common.tensors.state import State, flat, read_words, spell

Masks: TypeAlias = Mapping[str, Tensor]
Norm: TypeAlias = Literal["row", "dice"]
Selection: TypeAlias = Literal["sensitivity", "random", "reverse"]
Collaboration: TypeAlias = Literal["time_varying", "none", "top1", "top5"]

NO_MOVEMENT = 1e-10
"""A threshold this low says that not enough entries have moved to fill the share."""
NOTHING = 1e-20
"""Sensitivities this small are taken for none at all."""
TOLERANCE = 1e-9
"""Overlaps that differ by rounding alone are equal."""

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
    return _count(packed.cpu().numpy())


def jaccard(first: Tensor, second: Tensor) -> float:
    """Entries marked in both packed masks, as a part of those marked in either; 0 where there are none."""
    a, b = first.cpu().numpy(), second.cpu().numpy()
    either = _count(a | b)
    return _count(a & b) / either if either else 0.0


def overlaps(packed: Sequence[Tensor], norm: Norm = "row") -> Tensor:
    """Overlap of each mask (row) with each other (column), in float64; 1 for equal ones (FedCAC, Sec. 4.2).

    By row O_ij = 1 - |M_i - M_j| / (2 |M_i|), by dice 1 - |M_i - M_j| / (|M_i| + |M_j|); 0 if M_i is empty.
    """
    differing, sizes = _count_bits(packed)
    whole = 2 * sizes[:, None] if norm == "row" else sizes[:, None] + sizes[None, :]
    overlap = 1 - differing.double() / whole.clamp(min=1)
    return torch.where(sizes[:, None] > 0, overlap, 0.0)


def spread(overlap: Tensor) -> tuple[float, float]:
    """Mean and maximum over all ordered pairs of two different sites: O_avg and O_max."""
    pairs = overlap[~torch.eye(len(overlap), dtype=torch.bool)]
    return float(pairs.mean()), float(pairs.max())


def threshold(overlap: Tensor, number: int, beta: float) -> float:
    """The overlap required in this round: it rises from the mean to the maximum (FedCAC, Eq. 7)."""
    average, highest = spread(overlap)
    return average + number / beta * (highest - average)


def circles(overlap: Tensor, collaboration: Collaboration, *, number: int, beta: float) -> list[list[int]]:
    """Which others each site shares its critical entries with, by their places (FedCAC, Eq. 8)."""
    alone: list[list[int]] = [[] for _ in overlap]
    if collaboration == "none" or len(overlap) < 2:
        return alone
    others = overlap.clone().fill_diagonal_(-math.inf)
    if collaboration != "time_varying":
        nearest = others.argsort(dim=1, descending=True, stable=True)
        count = min({"top1": 1, "top5": 5}[collaboration], len(overlap) - 1)
        return [sorted(row) for row in nearest[:, :count].tolist()]
    # Where mean and maximum are equal the threshold would never pass them: the end is said, not left to it.
    if number > beta:
        return alone
    reached = others >= threshold(overlap, number, beta) - TOLERANCE
    return [row.nonzero().flatten().tolist() for row in reached]


def tell(overlap: Tensor, collaboration: Collaboration, *, number: int, beta: float) -> dict[str, float]:
    """O_avg, O_max and what an overlap has to reach, as long as any can; nothing of a single site."""
    if len(overlap) < 2:
        return {}
    average, highest = spread(overlap)
    told = {"overlap/mean": average, "overlap/most": highest}
    if collaboration == "time_varying" and number <= beta:
        told["overlap/threshold"] = threshold(overlap, number, beta)
    return told


def spell_circles(sites: Sequence[str], rows: Sequence[Sequence[int]], number: int) -> dict[str, Tensor]:
    """For each site the keys of the updates its mean is made of, its own among them, in site order."""
    return {
        f"circle.{sites[own]}": spell(f"{sites[place]}@{number}" for place in sorted([own, *others]))
        for own, others in enumerate(rows)
    }


def read_circle(state: State, site: str) -> list[str]:
    """The keys of a site's circle; none for a site that was never counted."""
    return read_words(state.get(f"circle.{site}"))


def keep_circles(state: State) -> State:
    """Let go of the updates that no site's circle needs any more."""
    sites = [name.removeprefix("circle.") for name in state if name.startswith("circle.")]
    needed = {key for site in sites for key in read_circle(state, site)}
    return State(state, kept={key: kept for key, kept in state.kept.items() if key in needed})


def _marked(places: Tensor, like: Tensor) -> Tensor:
    mask = torch.zeros(like.numel(), dtype=torch.bool, device=like.device)
    mask[places] = True
    return mask.view(like.shape)


def _count_bits(packed: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Bits in which each pair differs, and bits set in each; the masks are not copied, for there may be many."""
    rows = [mask.cpu().numpy() for mask in packed]
    differing = torch.zeros(len(rows), len(rows), dtype=torch.int64)
    for i, row in enumerate(rows):
        for j in range(i + 1, len(rows)):
            differing[i, j] = differing[j, i] = _count(row ^ rows[j])
    return differing, torch.tensor([_count(row) for row in rows])


def _count(packed: np.ndarray) -> int:
    """Bits that are set: eight bytes at a time, then those left over."""
    whole = len(packed) - len(packed) % 8
    words, rest = packed[:whole].view(np.uint64), packed[whole:]
    return int(np.bitwise_count(words).sum(dtype=np.int64)) + int(np.bitwise_count(rest).sum(dtype=np.int64))
