"""Which sites resemble each other: the overlap of their masks, and the circle each shares its critical entries with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from pfl_common.learning.masks import count_bits
from pfl_common.tensors.state import State, read_words, spell

Norm: TypeAlias = Literal["row", "dice"]
Collaboration: TypeAlias = Literal["time_varying", "none", "top1", "top5"]

TOLERANCE = 1e-9
"""Overlaps that differ by rounding alone are equal."""


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


def _count_bits(packed: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Bits in which each pair differs, and bits set in each; the masks are not copied, for there may be many."""
    rows = [mask.cpu().numpy() for mask in packed]
    differing = torch.zeros(len(rows), len(rows), dtype=torch.int64)
    for i, row in enumerate(rows):
        for j in range(i + 1, len(rows)):
            differing[i, j] = differing[j, i] = count_bits(row ^ rows[j])
    return differing, torch.tensor([count_bits(row) for row in rows])
