"""Images as bytes, channels first, in the size and the colours a run asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

GREY_MODES = ("1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N")
NO_BYTES = ("I", "F")
"""Pixel formats of 32 bits: nothing says which number is white."""


class Unreadable(Exception):
    """A file is no image we can read; the words never hold its name."""


def look(path: Path) -> tuple[int, int, int]:
    """Channels (1 grey, 3 colour), height and width from an image's first bytes; its pixels are not read."""
    try:
        with Image.open(path) as image:
            _check_mode(image)
            return (1 if image.mode in GREY_MODES else 3), image.height, image.width
    except Unreadable:
        raise
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # decoders raise whatever they stumble over; its words often hold the file's name
        raise Unreadable(type(error).__name__) from None


def read(path: Path, shape: tuple[int, ...]) -> Tensor:
    """An image file as bytes of this shape (channels, height, width)."""
    try:
        with Image.open(path) as image:
            _check_mode(image)
            return fit(image, shape)
    except Unreadable:
        raise
    except MemoryError:
        raise
    except Exception as error:  # as in `look`
        raise Unreadable(type(error).__name__) from None


def fit(image: Image.Image, shape: tuple[int, ...]) -> Tensor:
    """Bring an image to this many channels, this height and this width."""
    channels, height, width = shape
    coloured = _colour(image, channels)
    if coloured.size != (width, height):
        coloured = coloured.resize((width, height), Image.Resampling.BILINEAR)
    values = torch.from_numpy(np.array(coloured, dtype=np.uint8))
    return values.reshape(height, width, channels).permute(2, 0, 1)


def fit_all(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Bring images that are already bytes (N, channels, height, width) to another shape."""
    if tuple(images.shape[1:]) == shape:
        return images
    fitted = torch.empty((len(images), *shape), dtype=torch.uint8)
    for place, image in enumerate(images):
        values = image[0] if len(image) == 1 else image.permute(1, 2, 0)
        fitted[place] = fit(Image.fromarray(values.contiguous().numpy()), shape)
    return fitted


def _colour(image: Image.Image, channels: int) -> Image.Image:
    if image.mode.startswith("I;16"):
        # Pillow cuts 16 bits off at 255; the scanner meant 65535 to be white.
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if channels == 1 else "RGB")


def _check_mode(image: Image.Image) -> None:
    if image.mode in NO_BYTES:
        raise Unreadable(f"its pixels have 32 bits (mode {image.mode}), 8 or 16 can be read")
