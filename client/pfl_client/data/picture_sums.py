"""Sums over a site's training pictures by channel, which a run asks for to scale pictures alike at all sites.

A sum over a few pictures would tell them: then the site takes what the others say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pfl_client.data import image_decoding
from pfl_client.data.dicom import Window
from pfl_client.data.image_decoding import Look, Target
from pfl_common.spec.data_description import FEWEST_SUMMED
from pfl_common.spec.run import NOT_SUMMED, Moments

Doubles: TypeAlias = npt.NDArray[np.float64]
LONGEST_SIDE = 224
"""A larger picture is summed as if it had been brought to this, as most runs bring it."""


def sum_files(
    files: Sequence[tuple[Path, Look]],
    shape: tuple[int, ...],
    ends: tuple[float, float],
    *,
    wide: bool,
    window: Window | None = None,
) -> Moments:
    """Sums over image files as if each had this shape. Where they have 16 bits it is over those alone, and of their raw
    values between the ends.
    """
    chosen = [(path, look) for path, look in files if look.wide == wide]
    channels, height, width = shape[0], *(min(side, LONGEST_SIDE) for side in shape[1:])
    size = (channels, height, width)
    means = _read_wide(chosen, channels, ends) if wide else _read_bytes(chosen, Target(size, window=window))
    return add_up(means, numbers=height * width)


def add_up(pictures: Iterable[tuple[Doubles, Doubles]], *, numbers: int) -> Moments:
    """Sums from each picture's mean and mean square by channel, each counted as so many numbers."""
    pairs = list(pictures)
    if len(pairs) < FEWEST_SUMMED:
        return NOT_SUMMED
    sums, squares = (np.stack(own).sum(0) * numbers for own in zip(*pairs, strict=True))
    return Moments(len(pairs) * numbers, tuple(sums.tolist()), tuple(squares.tolist()))


def measure(picture: npt.NDArray[np.generic]) -> tuple[Doubles, Doubles]:
    """Mean and mean square of each channel of a picture (channels, height, width)."""
    values = picture.reshape(len(picture), -1).astype(np.float64)
    return values.mean(1), (values**2).mean(1)


def _read_bytes(files: Iterable[tuple[Path, Look]], target: Target) -> Iterator[tuple[Doubles, Doubles]]:
    for path, _ in files:
        # A file that is cut short is told of, and left out, when it is read for training.
        with suppress(image_decoding.Unreadable):
            yield measure(image_decoding.read(path, target).numpy())


def _read_wide(
    files: Iterable[tuple[Path, Look]], channels: int, ends: tuple[float, float]
) -> Iterator[tuple[Doubles, Doubles]]:
    for path, _ in files:
        with suppress(image_decoding.Unreadable):
            mean, square = measure(np.clip(image_decoding.read_wide(path), *ends)[None])
            yield mean.repeat(channels), square.repeat(channels)
