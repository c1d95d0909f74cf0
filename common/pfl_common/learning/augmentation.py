"""Changes training pictures by chance, as the run's list says; each epoch draws anew.

A sample's draws follow from (run seed, site, round, epoch, its place among the training samples) alone: in which batch
it comes, and with which others, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TypeAlias

import torch
from torch import Tensor

from pfl_common.learning.pixels import Pixels
from pfl_common.models.torchvision_import import import_torchvision
from pfl_common.spec.augmentation import (
    Brightness,
    Contrast,
    Crop,
    Fill,
    Flip,
    Noise,
    Rotate,
    Saturation,
    Shift,
    Step,
    Steps,
    Zoom,
)

MOST_DRAWS = 3
"""Numbers that one change of one picture takes; each has as many, so that its draws do not depend on its neighbours'
kinds.
"""
FLIPPED_AT_ONCE = 1 << 16
"""Values."""
_SEEDS = 1 << 32
"""A generator on a CPU looks at no more bits."""

Draws: TypeAlias = list[float]


@dataclass(frozen=True)
class Augmentation:
    """The run's list of changes."""

    steps: Steps
    pixels: Pixels | None = None

    def draw(self, count: int, chance: torch.Generator) -> Callable[[Tensor, Tensor], Tensor]:
        """Draw for each sample of an epoch; gives what changes a batch, from its pictures, which are its own
        to write into, and their places.
        """
        # One row a sample. Only the row is looked at when it is its turn.
        drawn = torch.rand(count, len(self.steps), MOST_DRAWS, generator=chance, dtype=torch.float64)
        return partial(self._change, drawn)

    def _change(self, drawn: Tensor, x: Tensor, places: Tensor) -> Tensor:
        own = drawn[places]
        for number, step in enumerate(self.steps):
            x = self._make(step, x, own[:, number])
        return x

    def _make(self, step: Step, x: Tensor, drawn: Tensor) -> Tensor:
        if isinstance(step, Flip):
            return _flip(step, x, drawn)
        one = partial(_CHANGES[type(step)], step) if type(step) in _CHANGES else self._filling(step, x)
        return torch.stack([one(picture, draws) for picture, draws in zip(x, drawn.tolist(), strict=True)])

    def _filling(self, step: Step, x: Tensor) -> Callable[[Tensor, Draws], Tensor]:
        """With a value for each channel. The mean becomes exactly 0 when it is taken away."""
        kind: Fill = getattr(step, "fill", "black")
        fill = [0.0] * x.shape[1]
        if kind == "mean" and self.pixels is not None:
            fill = [float(value) for value in self.pixels.mean.flatten().expand(x.shape[1])]
        return partial(_FILLING[type(step)], step, fill=fill)


def _flip(step: Flip, x: Tensor, drawn: Tensor) -> Tensor:
    """In place and without torchvision: only the chosen pictures are touched."""
    chosen = (drawn[:, 0] < step.chance).nonzero().flatten().to(x.device)
    # Many at once if they are small; fresh memory for many large ones costs more than mirroring them.
    for some in torch.split(chosen, max(1, FLIPPED_AT_ONCE // x[0].numel())):
        x[some] = x[some].flip(-1 if step.axis == "horizontal" else -2)
    return x


def _rotate(step: Rotate, x: Tensor, draws: Draws, *, fill: list[float]) -> Tensor:
    angle, v2 = _about(0, step.degrees, draws[0]), _functional()
    way = v2.InterpolationMode(step.interpolation)
    turned: Tensor = v2.functional.rotate(x, angle, interpolation=way, fill=fill)
    return turned


def _crop(step: Crop, x: Tensor, draws: Draws, *, fill: list[float]) -> Tensor:
    height, width = x.shape[-2:]
    top, left = (math.floor(draw * (2 * step.padding + 1)) for draw in draws[:2])
    v2 = _functional()
    framed = v2.functional.pad(x, [step.padding] * 4, fill=fill)
    cut: Tensor = v2.functional.crop(framed, top, left, height, width)
    return cut


def _zoom(step: Zoom, x: Tensor, draws: Draws) -> Tensor:
    height, width = x.shape[-2:]
    side = math.sqrt(step.smallest + (1 - step.smallest) * draws[0])
    high, wide = (max(1, round(side * length)) for length in (height, width))
    top, left = (
        math.floor(draw * (whole - part + 1))
        for draw, whole, part in zip(draws[1:], (height, width), (high, wide), strict=True)
    )
    zoomed: Tensor = _functional().functional.resized_crop(x, top, left, high, wide, [height, width])
    return zoomed


def _shift(step: Shift, x: Tensor, draws: Draws, *, fill: list[float]) -> Tensor:
    height, width = x.shape[-2:]
    down, right = (
        round(_about(0, step.share * side, draw)) for side, draw in zip((height, width), draws, strict=False)
    )
    moved: Tensor = _functional().functional.affine(
        x, angle=0.0, translate=[right, down], scale=1.0, shear=[0.0, 0.0], fill=fill
    )
    return moved


def _brightness(step: Brightness, x: Tensor, draws: Draws) -> Tensor:
    made: Tensor = _functional().functional.adjust_brightness(x, _about(1, step.strength, draws[0]))
    return made


def _contrast(step: Contrast, x: Tensor, draws: Draws) -> Tensor:
    made: Tensor = _functional().functional.adjust_contrast(x, _about(1, step.strength, draws[0]))
    return made


def _saturation(step: Saturation, x: Tensor, draws: Draws) -> Tensor:
    made: Tensor = _functional().functional.adjust_saturation(x, _about(1, step.strength, draws[0]))
    return made


def _noise(step: Noise, x: Tensor, draws: Draws) -> Tensor:
    # torchvision's own noise draws from the global generator.
    chance = torch.Generator().manual_seed(int(draws[0] * _SEEDS))
    return (x + step.deviation * torch.randn(x.shape, generator=chance).to(x.device)).clamp(0, 1)


_FILLING: dict[type[Step], Callable[..., Tensor]] = {Rotate: _rotate, Crop: _crop, Shift: _shift}
"""Changes after which a part of the picture is empty."""
_CHANGES: dict[type[Step], Callable[..., Tensor]] = {
    Zoom: _zoom,
    Brightness: _brightness,
    Contrast: _contrast,
    Saturation: _saturation,
    Noise: _noise,
}


def _about(middle: float, reach: float, draw: float) -> float:
    """A number within `reach` of the middle."""
    return middle + reach * (2 * draw - 1)


def check_available(steps: Iterable[Step]) -> None:
    """Refuse in words where a change needs torchvision and it is not installed."""
    if any(not isinstance(step, Flip | Noise) for step in steps):
        _functional()


def _functional() -> ModuleType:
    return import_torchvision("torchvision.transforms.v2", wanted="--augment asks for its transforms")
