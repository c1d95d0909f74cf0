"""Draws one digit as a 32x32 colour picture: printed on plain colour, on a photograph, or by hand on paper.

Everything is drawn three times as large and made small at the end, so that edges are smooth. All chance comes
from the brush's own generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SIDE = 32
_LARGE = 3 * SIDE
_EM = 120  # glyphs are set once at this size and scaled from there

Picture = npt.NDArray[np.uint8]
Colour = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Brush:
    """The means of drawing: random numbers, typefaces, and the photographs that patches are cut from."""

    rng: np.random.Generator
    faces: Sequence[Path] = ()
    photos: Sequence[Picture] = ()

    def within(self, low: float, high: float) -> float:
        """A number from low to high."""
        return float(self.rng.uniform(low, high))

    def face(self) -> Path:
        """One of the typefaces."""
        return self.faces[int(self.rng.integers(len(self.faces)))]


def synth(digit: int, brush: Brush) -> Picture:
    """A printed digit on plain colour, with neighbours that reach into the picture and some jitter."""
    mask = _line(digit, brush, height=(50, 76))
    mask = _warp(mask, brush, turn=0.22, slant=0.12)
    paper = brush.rng.uniform(0, 255, 3)
    ink = _contrasting(paper, brush, least=50)
    return _small(_blend(mask, ink, np.broadcast_to(paper, (_LARGE, _LARGE, 3))))


def street(digit: int, brush: Brush) -> Picture:
    """A printed digit on a photograph, tilted, blurred and noisy, with neighbours. It is not SVHN."""
    mask = _line(digit, brush, height=(46, 74))
    mask = _warp(mask, brush, turn=0.15, slant=0.2, tilt=0.0035)
    wall = photo_patch(brush, _LARGE, crop=(40, 140)).astype(np.float64)
    ink = _contrasting(wall.mean(axis=(0, 1)), brush, least=45)
    scene = Image.fromarray(_bytes(_blend(mask, ink, wall)))
    scene = scene.filter(ImageFilter.GaussianBlur(brush.within(0.5, 4.0)))
    noise = brush.rng.normal(0, brush.within(3, 14), (SIDE, SIDE, 3))
    return _bytes(_small(np.asarray(scene)) + noise)


def hand(digit: int, brush: Brush) -> Picture:
    """A digit in a handwriting typeface, dark ink on light paper, each with its own waver and pen."""
    mask = _centred(_scaled(brush.face(), digit, brush, height=(54, 80)), brush)
    if brush.rng.random() < 0.35:
        mask = mask.filter(ImageFilter.MaxFilter(3))
    mask = _wavering(_warp(mask, brush, turn=0.2, slant=0.25), brush)
    paper = 255 - brush.rng.uniform(0, 40) - brush.rng.uniform(0, 25, 3)
    ink = brush.rng.uniform(0, 70) + brush.rng.uniform(0, 70, 3) * np.array([0.5, 0.5, 1.0])
    sheet = np.broadcast_to(paper, (_LARGE, _LARGE, 3))
    return _bytes(_small(_blend(mask, ink, sheet)) + brush.rng.normal(0, 3, (SIDE, SIDE, 3)))


def photo_patch(brush: Brush, side: int, *, crop: tuple[int, int]) -> Picture:
    """A square cut from a photograph at a drawn place and size, at times mirrored, scaled to `side`."""
    photo = brush.photos[int(brush.rng.integers(len(brush.photos)))]
    height, width = photo.shape[:2]
    cut = min(int(brush.rng.integers(crop[0], crop[1] + 1)), height, width)
    top, left = (int(brush.rng.integers(length - cut + 1)) for length in (height, width))
    patch = photo[top : top + cut, left : left + cut]
    if brush.rng.random() < 0.5:
        patch = patch[:, ::-1]
    image = Image.fromarray(np.ascontiguousarray(patch))
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR), dtype=np.uint8)


@lru_cache(maxsize=1024)
def _glyph(face: Path, digit: int) -> Image.Image:
    """The digit's ink, cut to its edges."""
    canvas = Image.new("L", (3 * _EM, 3 * _EM))
    ImageDraw.Draw(canvas).text((_EM, _EM), str(digit), font=_typeface(face), fill=255)
    box = canvas.getbbox()
    if box is None:
        raise ValueError(f"{face} draws nothing for {digit}: the font is damaged or another one of that name")
    return canvas.crop(box)


@lru_cache(maxsize=128)
def _typeface(face: Path) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(face), _EM)


def _scaled(face: Path, digit: int, brush: Brush, *, height: tuple[int, int]) -> Image.Image:
    glyph = _glyph(face, digit)
    tall = brush.within(*height)
    wide = min(glyph.width * tall / glyph.height * brush.within(0.85, 1.15), _LARGE - 12)
    return glyph.resize((max(4, round(wide)), round(tall)), Image.Resampling.BILINEAR)


def _centred(glyph: Image.Image, brush: Brush) -> Image.Image:
    canvas = Image.new("L", (_LARGE, _LARGE))
    canvas.paste(glyph, _middle(glyph, brush))
    return canvas


def _middle(glyph: Image.Image, brush: Brush) -> tuple[int, int]:
    across, down = (brush.within(-5, 5) for _ in range(2))
    return round((_LARGE - glyph.width) / 2 + across), round((_LARGE - glyph.height) / 2 + down)


def _line(digit: int, brush: Brush, *, height: tuple[int, int]) -> Image.Image:
    """The digit in the middle and, more often than not, a digit of the same face on its left and right."""
    face = brush.face()
    glyph = _scaled(face, digit, brush, height=height)
    left, top = _middle(glyph, brush)
    canvas = Image.new("L", (_LARGE, _LARGE))
    for side in (-1, 1):
        if brush.rng.random() < 0.6:
            neighbour = _glyph(face, int(brush.rng.integers(10)))
            wide = max(4, round(neighbour.width * glyph.height / neighbour.height))
            neighbour = neighbour.resize((wide, glyph.height), Image.Resampling.BILINEAR)
            gap = round(brush.within(5, 14))
            canvas.paste(neighbour, (left - gap - wide if side < 0 else left + glyph.width + gap, top))
    canvas.paste(glyph, (left, top))
    return canvas


def _warp(mask: Image.Image, brush: Brush, *, turn: float, slant: float, tilt: float = 0.0) -> Image.Image:
    """Turns, slants and tilts the picture about its middle; `tilt` is the perspective, per pixel."""
    angle, shear = brush.within(-turn, turn), brush.within(-slant, slant)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = turned @ np.array([[1.0, shear], [0.0, 1.0]])
    lean = brush.rng.uniform(-tilt, tilt, 2)
    # With u = x - m measured from the middle m the source is m + linear·u / (1 + lean·u); written out in x:
    middle = _LARGE / 2
    floor = 1 - middle * lean.sum()
    numerator = linear + middle * lean
    shift = middle * floor - middle * linear.sum(axis=1)
    matrix = np.concatenate([numerator[0], shift[:1], numerator[1], shift[1:], lean]) / floor
    return mask.transform(mask.size, Image.Transform.PERSPECTIVE, matrix.tolist(), Image.Resampling.BILINEAR)


def _wavering(mask: Image.Image, brush: Brush) -> Image.Image:
    """Moves the knots of a coarse grid a little: no two strokes of a pen are equal."""
    cells, step = 4, _LARGE // 4
    knots = np.stack(np.meshgrid(np.arange(cells + 1), np.arange(cells + 1), indexing="ij"), axis=-1) * float(
        step
    )
    knots[1:-1, 1:-1] += brush.rng.uniform(-5, 5, (cells - 1, cells - 1, 2))
    mesh = []
    for row in range(cells):
        for column in range(cells):
            box = (column * step, row * step, (column + 1) * step, (row + 1) * step)
            corners = [
                knots[row, column],
                knots[row + 1, column],
                knots[row + 1, column + 1],
                knots[row, column + 1],
            ]
            mesh.append((box, tuple(float(value) for down, across in corners for value in (across, down))))
    return mask.transform(mask.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


def _contrasting(background: Colour, brush: Brush, *, least: float) -> Colour:
    """A drawn colour whose brightness differs from the background's by at least so much."""
    for _ in range(100):
        colour = brush.rng.uniform(0, 255, 3)
        if abs(_brightness(colour) - _brightness(background)) >= least:
            return colour
    return np.full(3, 255.0 if _brightness(background) < 128 else 0.0)


def _brightness(colour: Colour) -> float:
    return float(colour @ np.array([0.299, 0.587, 0.114]))


def _blend(mask: Image.Image, ink: Colour, ground: Colour) -> Colour:
    share = np.asarray(mask, dtype=np.float64)[..., None] / 255
    return ground * (1 - share) + ink * share


def _bytes(values: npt.NDArray[np.generic]) -> Picture:
    return np.clip(np.rint(values.astype(np.float64)), 0, 255).astype(np.uint8)


def _small(large: npt.NDArray[np.generic]) -> Picture:
    image = Image.fromarray(_bytes(large))
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.uint8)
