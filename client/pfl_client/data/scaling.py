"""Scales raw numbers as the run agreed, so that equal raw values become equal inputs at every site."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pfl_common.spec.data_description import MOST_MOMENTS, WHITEST
from pfl_common.spec.run import Model, Moments

BLOCK = 1 << 20
"""Numbers that are summed at a time: in float64 they take twice the room of the samples."""

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
Wide: TypeAlias = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Scale:
    """The raw values that become black and white; with `per_picture` each picture's own."""

    low: float
    high: float
    per_picture: bool = False

    @classmethod
    def of(cls, model: Model) -> Scale | None:
        """As the run agreed; None: numbers stay as they are."""
        found = cls(model.low, model.high, model.per_picture)
        return found if found.per_picture or found.low < found.high else None

    def to_bytes(self, picture: Wide) -> Bytes:
        """A picture of 16 bits as one of 8; values beyond the range are black or white."""
        low, high = self._ends(picture)
        table = np.arange(WHITEST + 1, dtype=np.float64)
        scaled = np.clip((table - low) / (high - low), 0, 1) * 255
        levels: Bytes = np.rint(scaled).astype(np.uint8)
        return levels[picture]

    def to_unit(self, picture: Floats) -> Floats:
        """A picture of floats as one from 0 to 1."""
        low, high = self._ends(picture)
        unit: Floats = np.clip((picture.astype(np.float64) - low) / (high - low), 0, 1).astype(np.float32)
        return unit

    def _ends(self, picture: Wide | Floats) -> tuple[float, float]:
        low, high = (
            (float(picture.min()), float(picture.max())) if self.per_picture else (self.low, self.high)
        )
        return low, high if high > low else low + 1  # a picture of one colour is black


def sum_up(samples: Floats, *, channels: bool) -> Moments:
    """A site's sums, over all samples, of each feature that is told apart; with `channels` a sample's first axis."""
    rows = _Rows(samples, channels=channels)
    sums = sum((block.sum(0, dtype=np.float64) for block in rows.blocks()), np.zeros(rows.width))
    mean = sums / len(rows)
    # About the mean: of large numbers that differ little, the squares alone would tell nothing.
    about = sum((((block - mean) ** 2).sum(0) for block in rows.blocks()), np.zeros(rows.width))
    squares = about + len(rows) * mean**2
    return Moments(len(rows), tuple(sums.tolist()), tuple(squares.tolist()))


def standardise(samples: Floats, model: Model, *, channels: bool) -> Floats:
    """The samples less the mean, by the deviation, both of all sites; nothing where the run agreed on none."""
    if not model.mean:
        return samples
    mean, deviation = np.array(model.mean), np.array(model.deviation)
    if channels and len(mean) > 1:
        axes = (len(mean), *[1] * (samples.ndim - 2))
        mean, deviation = mean.reshape(axes), deviation.reshape(axes)
    changed = np.empty_like(samples)
    for start, end in _cuts(len(samples), max(1, samples[0].size if len(samples) else 1)):
        changed[start:end] = (samples[start:end] - mean) / deviation
    return changed


class _Rows:
    """Features side by side: channels of pictures and windows, columns of tables, the last axis of series; else all
    numbers are one. Only a block of them is in memory at a time, as samples may be a mapped file.
    """

    def __init__(self, samples: Floats, *, channels: bool) -> None:
        together = samples.ndim > 3 or samples.shape[-1] > MOST_MOMENTS
        self._samples, self._channels = samples, channels
        self.width = samples.shape[1] if channels else 1 if together else samples.shape[-1]
        self._of_one = math.prod(samples.shape[1:]) // self.width

    def __len__(self) -> int:
        return len(self._samples) * self._of_one

    def blocks(self) -> Iterator[Floats]:
        """All rows; where they are cut depends on their number alone, and with it the last bit of the sums."""
        for start, end in _cuts(len(self), self.width):
            first = start // self._of_one
            some = self._samples[first : -(-end // self._of_one)]
            rows = (np.moveaxis(some, 1, -1) if self._channels else some).reshape(-1, self.width)
            yield rows[start - first * self._of_one : end - first * self._of_one]


def _cuts(rows: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, BLOCK // width)
    return ((start, min(start + step, rows)) for start in range(0, rows, step))
