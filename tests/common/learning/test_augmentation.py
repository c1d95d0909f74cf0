"""Changes of training pictures, worked by hand; a sample's draws are its own, whatever batch it comes in."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pfl_common.learning import augmentation as module
from pfl_common.learning.augmentation import Augmentation
from pfl_common.learning.pixels import Pixels
from pfl_common.randomness import generators
from pfl_common.spec.augmentation import (
    KINDS,
    Brightness,
    Contrast,
    Crop,
    Flip,
    Noise,
    Rotate,
    Saturation,
    Shift,
    Step,
    Zoom,
)

PICTURE = torch.tensor([[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]]])


def change(step: Step, draws: list[float], x: Tensor = PICTURE, pixels: Pixels | None = None) -> Tensor:
    """One picture, changed with these draws in place of drawn ones."""
    drawn = torch.tensor([[[*draws, 0.0, 0.0, 0.0][: module.MOST_DRAWS]]], dtype=torch.float64)
    return Augmentation((step,), pixels)._change(drawn, x[None].clone(), torch.tensor([0]))[0]


@pytest.mark.parametrize(
    ("step", "draws", "expected"),
    [
        (Flip(), [0.49], [[0.3, 0.2, 0.1], [0.6, 0.5, 0.4], [0.9, 0.8, 0.7]]),
        (Flip(), [0.51], PICTURE[0].tolist()),
        (Flip(axis="vertical"), [0.0], [[0.7, 0.8, 0.9], [0.4, 0.5, 0.6], [0.1, 0.2, 0.3]]),
        # A draw of 1 is the largest angle, which turns against the clock.
        (Rotate(degrees=90), [1.0], [[0.3, 0.6, 0.9], [0.2, 0.5, 0.8], [0.1, 0.4, 0.7]]),
        (Rotate(degrees=90), [0.5], PICTURE[0].tolist()),
        # Three windows in each direction: the first third of draws is the upper one, and the left one.
        (Crop(padding=1), [0.0, 0.0], [[0, 0, 0], [0, 0.1, 0.2], [0, 0.4, 0.5]]),
        (Crop(padding=1), [0.5, 0.99], [[0.2, 0.3, 0], [0.5, 0.6, 0], [0.8, 0.9, 0]]),
        (Shift(share=0.5), [1.0, 0.5], [[0, 0, 0], [0, 0, 0], [0.1, 0.2, 0.3]]),
        (Zoom(smallest=1.0), [0.0, 0.9, 0.9], PICTURE[0].tolist()),
        (Brightness(strength=0.5), [0.0], [[0.05, 0.1, 0.15], [0.2, 0.25, 0.3], [0.35, 0.4, 0.45]]),
        # About the mean 0.5, half as far from it.
        (Contrast(strength=0.5), [0.0], [[0.3, 0.35, 0.4], [0.45, 0.5, 0.55], [0.6, 0.65, 0.7]]),
        (Saturation(strength=1.0), [0.0], PICTURE[0].tolist()),
    ],
)
def test_by_hand(step: Step, draws: list[float], expected: list[list[float]]) -> None:
    """On nine pixels."""
    torch.testing.assert_close(change(step, draws)[0], torch.tensor(expected), atol=1e-6, rtol=0)


def test_a_zoomed_corner() -> None:
    """A quarter of the area is half of each side: of four by four pixels the last two by two, enlarged."""
    picture = torch.zeros(1, 4, 4)
    picture[:, 2:, 2:] = 1
    assert torch.equal(torch.ones(1, 4, 4), change(Zoom(smallest=0.25), [0.0, 0.99, 0.99], picture))


def test_what_is_empty_has_the_mean_colour() -> None:
    """When it is taken away exactly 0 is left, as where a paper's code fills in after scaling."""
    pixels = Pixels(
        torch.tensor([0.507, 0.487]).reshape(-1, 1, 1), torch.tensor([0.267, 0.256]).reshape(-1, 1, 1)
    )
    framed = change(Crop(padding=3, fill="mean"), [0.0, 0.0], torch.rand(2, 3, 3), pixels)
    assert torch.equal(torch.zeros(2, 3, 3), pixels.scale(framed))


def test_noise_has_its_deviation() -> None:
    """And its own draws for each sample; values stay between 0 and 1."""
    x = torch.full((1, 200, 200), 0.5)
    one, other = (change(Noise(deviation=0.1), [draw], x) for draw in (0.25, 0.75))
    assert 0.1 == pytest.approx(float(one.std()), rel=0.02)
    assert not torch.equal(one, other)
    assert torch.equal(one, change(Noise(deviation=0.1), [0.25], x))
    assert (0.0, 1.0) == (float(change(Noise(deviation=1.0), [0.5], x).min()), 1.0)


@pytest.mark.parametrize("name", KINDS)
def test_a_sample_is_changed_alike_in_any_batch(name: str) -> None:
    """Alone, in another order and with others; twice the same, and otherwise in another epoch."""
    x, steps = torch.rand(9, 3, 8, 8), (KINDS[name](), Flip())
    places = torch.tensor([4, 0, 7, 2])

    def epoch(number: int) -> module.Callable[[Tensor, Tensor], Tensor]:
        return Augmentation(steps).draw(9, generators.generator(1, "site", 2, "augment", number))

    together = epoch(0)(x[places].clone(), places)
    for place, made in zip(places, together, strict=True):
        assert torch.equal(made, epoch(0)(x[place][None].clone(), place[None])[0])
    assert not torch.equal(together, epoch(1)(x[places].clone(), places))


def test_half_of_many_are_mirrored() -> None:
    """By a fair draw."""
    x = torch.rand(2000, 1, 2, 2)
    made = Augmentation((Flip(),)).draw(2000, generators.generator(3))(x.clone(), torch.arange(2000))
    mirrored = int((made != x).flatten(1).any(1).sum())
    assert abs(mirrored - 1000) < 4 * math.sqrt(500)
