"""Rules that make one model of many updates and bear some that lie, read block by block over all updates at once.

Published definitions, each over the updates u_1 .. u_n of a round, every site counting alike:

median      each coordinate's median; of an even number the mean of the middle two (Yin et al., ICML 2018)
trimmed     each coordinate's mean without its f lowest and f highest values (Yin et al., ICML 2018)
krum        the update with the smallest sum of squared distances to its n - f - 2 nearest (Blanchard et al., NIPS 2017)
multi-krum  the mean of the n - f updates with the smallest such sums (ibid.)
norm-clip   the mean, weighted as ever, of changes cut to the median length M: w + (u_i - w) min(1, M / ‖u_i - w‖)
            (Sun et al., Can You Really Backdoor Federated Learning?, 2019; there M is a constant)

f, the number of updates that may lie, is a share of n, rounded up, and no more than the rule can bear: below n / 2 for
`trimmed`, below (n - 2) / 2 for the two others. Of fewer than three updates all but norm-clip give the plain mean.
What is made depends on the set of updates alone: ties go to the first site by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pfl_common.spec.manifest import Manifest
from pfl_common.spec.rules import Robust
from pfl_common.tensors import mapped
from pfl_common.tensors.fused_sums import pair
from pfl_common.tensors.layout import Source, Stretch, Window, lay_out, stretches
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SUM

HELD = 256 << 20
"""Bytes of all updates' blocks together: of more sites smaller blocks are taken."""
COPIES = 3
"""As read, turned into columns, and sorted."""
SMALLEST = 1 << 12
"""Numbers of a block at least: opening an update takes as long as reading so many."""
WIDENED = 1 << 14
"""Numbers of each update that distances are measured of at a time, in double precision."""
FEWEST = 3
"""Updates of which one can be told from the others."""


class Parcel(Protocol):
    """One verified update, read from where it lies."""

    @property
    def manifest(self) -> Manifest: ...

    def source(self) -> AbstractContextManager[Source]: ...


@dataclass(frozen=True)
class _Block:
    """The same numbers of all updates, a row each, and their place."""

    stretch: Stretch
    start: int
    rows: np.ndarray

    def base(self, sent: State) -> np.ndarray:
        """What was sent in their place; 0 where nothing was."""
        base = torch.zeros(self.rows.shape[1], dtype=torch.float64)
        for name, piece, begin in self.pieces(base):
            if (came := sent.get(name)) is not None:
                piece.copy_(came.detach().reshape(-1)[begin : begin + len(piece)])
        return base.numpy()

    def pieces(self, numbers: Tensor) -> Iterator[tuple[str, Tensor, int]]:
        """As many numbers, cut where tensors end: each tensor's name, its numbers, the place of the first of them."""
        for part, piece, begin in self.stretch.pieces(self.start, numbers):
            yield part.entry.name.removeprefix(f"{SUM}."), piece, begin


_Made: TypeAlias = Callable[[_Block], np.ndarray]


class Agreement:
    """Takes the place of a sum: its mean is what a rule makes of the updates."""

    def __init__(
        self,
        rule: Robust,
        parcels: Sequence[Parcel],
        sent: State,
        *,
        share: float,
        changes: Sequence[float] = (),
    ) -> None:
        """Updates in site order, of one manifest without optional groups; for norm-clip, how far each went."""
        self._rule, self._parcels, self._sent, self._share = rule, list(parcels), sent, share
        self._changes = changes

    @property
    def totals(self) -> State:
        """There are none: a rule makes no sum."""
        raise TypeError(f"the rule {self._rule} makes no totals")

    @property
    def weights(self) -> State:
        """There are none either."""
        raise TypeError(f"the rule {self._rule} makes no weights")

    def mean(self, otherwise: State) -> State:
        """What the rule makes under the names of `otherwise`, which also fills in what no update holds."""
        if not self._parcels:
            return otherwise
        places = lay_out(self._parcels[0].manifest, ())
        pairs = pair(places)
        counted = {name: otherwise[name] for name in pairs if name in otherwise}
        rule = self._choose_rule()
        with mapped.draft(counted) as draft:
            for block in self._blocks():
                for name, piece, begin in block.pieces(torch.from_numpy(rule(block))):
                    if name in counted:
                        draft.put(name, begin, piece.to(counted[name].dtype))
            return State({**otherwise, **draft.tensors()}, kept=otherwise.kept)

    def _blocks(self) -> Iterator[_Block]:
        """All summed numbers, a bounded number at a time."""
        size = max(SMALLEST, min(BLOCK, HELD // (COPIES * 4 * len(self._parcels))))
        window: Window | None = None
        for stretch in stretches(lay_out(self._parcels[0].manifest, ())):
            if stretch.whole.branch != SUM:
                continue
            whole = stretch.whole
            for start in range(0, whole.count, size):
                stop = min(start + size, whole.count)
                rows = np.empty((len(self._parcels), stop - start), _wide(whole.dtype))
                for place, parcel in enumerate(self._parcels):
                    with parcel.source() as source:
                        window = window or Window(source, size)
                        window.over(source)
                        rows[place] = window.take(whole, start, stop).to(_TORCH[rows.dtype.itemsize]).numpy()
                yield _Block(stretch, start, rows)

    def _choose_rule(self) -> _Made:
        n = len(self._parcels)
        if self._rule == "norm-clip":
            return _Clip(self._changes, self._read_weights(), self._sent)
        if n < FEWEST:
            return _mean_of(range(n))
        if self._rule == "median":
            return _median
        hostile = ceil(self._share * n - 1e-9)
        if self._rule == "trimmed":
            return _trim(min(hostile, (n - 1) // 2))
        hostile = min(hostile, (n - 3) // 2)
        chosen = rank(self._squared_distances(), hostile)[: 1 if self._rule == "krum" else n - hostile]
        return _mean_of(sorted(chosen))

    def _squared_distances(self) -> np.ndarray:
        """Between all pairs of updates."""
        n = len(self._parcels)
        products = np.zeros((n, n))
        for block in self._blocks():
            # From what was sent: products of small numbers keep the digits that distances are made of.
            base = block.base(self._sent)
            for at in range(0, len(base), WIDENED):
                own = block.rows[:, at : at + WIDENED].astype(np.float64)
                gap = torch.from_numpy(own - base[at : at + WIDENED])
                products += (gap @ gap.T).numpy()
        lengths = products.diagonal()
        return np.maximum(lengths[:, None] + lengths[None, :] - 2 * products, 0.0)

    def _read_weights(self) -> list[dict[str, float]]:
        """By update, the weight of each of its tensors."""
        found = []
        places = pair(lay_out(self._parcels[0].manifest, ()))
        for parcel in self._parcels:
            with parcel.source() as source:
                window = Window(source, 1)
                found.append({n: window.take(weight, 0, 1).item() for n, (_, weight) in places.items()})
        return found


def rank(squares: np.ndarray, hostile: int) -> list[int]:
    """Places of the updates, the best by Krum's score first."""
    n = len(squares)
    others = np.sort(squares + np.diag(np.full(n, np.inf)), axis=1)
    scores = others[:, : n - hostile - 2].sum(axis=1)
    return [int(place) for place in np.argsort(scores, kind="stable")]


def _median(block: _Block) -> np.ndarray:
    columns = np.sort(np.ascontiguousarray(block.rows.T), axis=1)
    low, high = (columns.shape[1] - 1) // 2, columns.shape[1] // 2
    middle: np.ndarray = (columns[:, low].astype(np.float64) + columns[:, high]) / 2
    return middle


def _trim(hostile: int) -> _Made:
    def trimmed(block: _Block) -> np.ndarray:
        columns = np.sort(np.ascontiguousarray(block.rows.T), axis=1)
        inside = columns[:, hostile : columns.shape[1] - hostile]
        return np.asarray(inside.mean(axis=1, dtype=np.float64))

    return trimmed


def _mean_of(chosen: Sequence[int]) -> _Made:
    def mean(block: _Block) -> np.ndarray:
        total = np.zeros(block.rows.shape[1])
        for place in chosen:
            total += block.rows[place]
        return total / len(chosen)

    return mean


class _Clip:
    """The weighted mean of changes cut to the median length."""

    def __init__(self, changes: Sequence[float], weights: Sequence[dict[str, float]], sent: State) -> None:
        most = median(changes)
        self._cuts = [min(1.0, most / change) if change else 1.0 for change in changes]
        self._weights, self._sent = weights, sent

    def __call__(self, block: _Block) -> np.ndarray:
        made, at = block.base(self._sent), 0
        for name, piece, _ in block.pieces(torch.from_numpy(made)):
            weights = [own[name] for own in self._weights]
            self._go(piece.numpy(), block.rows[:, at : at + len(piece)], weights)
            at += len(piece)
        return made

    def _go(self, base: np.ndarray, rows: np.ndarray, weights: Sequence[float]) -> None:
        """From what was sent to the mean; where nobody counts it stays."""
        if not (whole := sum(weights)):
            return
        total = np.zeros(len(base))
        for row, cut, weight in zip(rows, self._cuts, weights, strict=True):
            total += weight * cut * (row - base)
        base += total / whole


_TORCH = {4: torch.float32, 8: torch.float64}


def _wide(dtype: torch.dtype) -> type[np.float32] | type[np.float64]:
    """The type that numbers are taken in: a short one has no place in numpy."""
    return np.float64 if dtype == torch.float64 else np.float32
