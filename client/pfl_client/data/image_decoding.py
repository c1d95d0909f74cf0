"""Decodes images to bytes, channels first, in the run's size and colours; one image is in memory at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pfl_client.data import dicom
from pfl_client.data.dicom import Window
from pfl_client.data.scaling import Scale, Wide
from pfl_common.errors import DataError
from pfl_common.spec.data_description import WHITEST

GREY_MODES = ("1", "L", "LA", "La")
NO_BYTES = ("F",)
"""Pixels of 32 bits as floats: nothing says which number is white."""
ORIENTATION = 0x0112
"""The EXIF tag of how a camera was held."""
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What brings an image upright, by its orientation; from 5 on width and height change places."""
DRAFT = 2
"""A JPEG is decoded at a half, a quarter or an eighth of its size as long as it stays so many times larger than what is
wanted. Its decoder leaves out frequencies then, by whole numbers: the same file gives the same bytes, in an eighth of
the memory.
"""


FORMATS = ("PNG", "JPEG", "MPO", "TIFF", "WEBP", "AVIF", "JPEG2000", "BMP", "GIF", "PPM")
"""The pictures that are opened, by what their first bytes say and never by their names. Each is decoded in this
process; of the others that Pillow knows some hand the file to another program (EPS to Ghostscript), and some are found
in any bytes.
"""
LARGEST_FILE = 2 << 30
"""Bytes: more than the most pixels take unpacked, in 16 bits and three colours. Some decoders read a file whole."""


class Unreadable(Exception):
    """The file is no image we can read; the text never holds its name."""


class Denied(Unreadable):
    """This user may not read the file."""


@dataclass(frozen=True)
class Look:
    """The facts in an image's first bytes."""

    shape: tuple[int, int, int]
    """Channels (1 grey, 3 colour), height and width, upright."""
    wide: bool = False
    """Its pixels have 16 bits, so that its range has to be known."""
    cut: bool = False
    """Its colours have 16 bits each, of which the decoder gives the upper 8."""
    several: bool = False
    """The file holds more pictures after the first, which alone is read."""
    windowless: bool = False
    """A DICOM picture without a window: its own smallest and largest value become black and white."""


@dataclass(frozen=True)
class Target:
    """How pictures become samples of a run: everything beside a file that its bytes depend on."""

    shape: tuple[int, ...]
    """Channels, height, width."""
    scale: Scale | None = None
    """For pictures of 16 bits."""
    window: Window | None = None
    """For DICOM, in place of each file's own."""


def look(path: Path) -> Look:
    """Read an image's header; its pixels are not read."""
    with _explained(), path.open("rb") as file:
        _check_length(file)
        if dicom.is_dicom(file):
            head = dicom.read_head(file, most=_most_pixels())
            return Look(head.shape, windowless=head.windowless)
    with _opened(path) as image:
        width, height = image.size
        if _orientation(image) >= 5:
            width, height = height, width
        wide = _is_wide(image)
        # Phones put a preview after the picture (MPO): nobody misses it.
        several = bool(getattr(image, "is_animated", False)) and image.format != "MPO"
        channels = 1 if wide or image.mode in GREY_MODES else 3
        return Look((channels, height, width), wide, _is_cut(image), several)


def decode(path: Path, look: Look) -> None:
    """Read an image whole, exactly as training does, and keep nothing of it: first bytes do not show that it is cut."""
    read(path, Target((look.shape[0], 1, 1), Scale(0, WHITEST)))


def read_wide(path: Path) -> Wide:
    """The raw values of an image of 16 bits."""
    with _opened(path) as image:
        return _values(image)


def read(path: Path, target: Target) -> Tensor:
    """An image file as bytes of the target's shape, upright."""
    with _opened(path, target.window) as image:
        turn = TURNS.get(_orientation(image))
        channels, height, width = target.shape
        lying = (channels, width, height) if _orientation(image) >= 5 else (channels, height, width)
        image.draft(image.mode, (DRAFT * lying[2], DRAFT * lying[1]))
        fitted = _fit(_to_bytes(image, target.scale) if _is_wide(image) else image, lying)
        # Turned when it is small: a second copy of a large image is never made.
        return _to_tensor(fitted if turn is None else fitted.transpose(turn), channels)


def fit(image: Image.Image, shape: tuple[int, ...]) -> Tensor:
    """Bring an image to this many channels, this height and this width."""
    return _to_tensor(_fit(image, shape), shape[0])


def fit_all(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Bring images that are already bytes (N, channels, height, width) to another shape."""
    if tuple(images.shape[1:]) == shape:
        return images
    fitted = torch.empty((len(images), *shape), dtype=torch.uint8)
    for place, image in enumerate(images):
        values = image[0] if len(image) == 1 else image.permute(1, 2, 0)
        fitted[place] = fit(Image.fromarray(values.contiguous().numpy()), shape)
    return fitted


def fit_floats(image: np.ndarray[tuple[int, ...], np.dtype[np.float32]], shape: tuple[int, ...]) -> Tensor:
    """Bring an image of floats (channels, height, width) to another shape, by the same rules as one of bytes."""
    channels, height, width = shape
    planes = list(image)
    if len(planes) == 3 and channels == 1:
        red, green, blue = planes
        planes = [(0.299 * red + 0.587 * green + 0.114 * blue).astype(np.float32)]
    sized = [
        np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR))
        if plane.shape != (height, width)
        else plane
        for plane in planes
    ]
    stacked = np.stack(sized * channels if len(sized) == 1 else sized)
    return torch.from_numpy(stacked)


@contextmanager
def _opened(path: Path, window: Window | None = None) -> Iterator[Image.Image]:
    # Given a name in place of a stream, Pillow maps an uncompressed TIFF into memory, and mixes up the rows of one that
    # EXIF turns by a quarter.
    with _explained(), path.open("rb") as file:
        _check_length(file)
        if dicom.is_dicom(file):
            yield Image.fromarray(dicom.read(file, most=_most_pixels(), window=window))
            return
        with Image.open(file, formats=_formats()) as image:
            if image.mode in NO_BYTES:
                raise Unreadable(f"its pixels have 32 bits (mode {image.mode}), 8 or 16 can be read")
            yield image


@contextmanager
def _explained() -> Iterator[None]:
    """Decoders raise whatever they stumble over; its words often hold the file's name, or what stands in it."""
    try:
        yield
    except (Unreadable, MemoryError, DataError):
        raise
    except dicom.Unusable as error:
        raise Unreadable(str(error)) from None
    except PermissionError:
        raise Denied("Permission denied") from None
    except Image.DecompressionBombError:
        raise Unreadable(f"it has more than {_most_pixels() // 10**6} million pixels") from None
    except Exception as error:
        raise Unreadable(_REASONS.get(type(error).__name__, type(error).__name__)) from None


@cache
def _formats() -> tuple[str, ...]:
    """Those of our list that this Pillow can read: AVIF and WEBP need libraries of their own."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _check_length(file: BinaryIO) -> None:
    """Refuse, before any decoder sees it, a file that is too large to hold one picture."""
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST_FILE:
        raise Unreadable(f"the file has {size / 1e9:.1f} GB; a picture has at most {LARGEST_FILE / 1e9:.1f}")


def _most_pixels() -> int:
    """Where the decoder takes a picture for an attack on memory."""
    return 2 * (Image.MAX_IMAGE_PIXELS or 0)


_REASONS = {
    "UnidentifiedImageError": "its format is not known",
    "FileNotFoundError": "it has gone, or is a link to nothing",
    "SyntaxError": "it is damaged",
    "OSError": "it is damaged or cut short",
}


def _orientation(image: Image.Image) -> int:
    """How a camera was held, 1 to 8. A PNG that does not say so before its pixels is not decoded to find out."""
    if image.format == "TIFF":
        return 1  # its decoder turns it, and gives the size of what it has turned
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & image.info.keys():
        return 1
    found = image.getexif().get(ORIENTATION, 1)
    return found if found in TURNS else 1


def _is_wide(image: Image.Image) -> bool:
    # Depending on its release Pillow opens a grey PNG of 16 bits as 32; whether its values are of 16 shows later.
    return image.mode == "I" or image.mode.startswith("I;16")


def _is_cut(image: Image.Image) -> bool:
    return image.mode in ("RGB", "RGBA", "LA") and any(
        ";16" in str(tile[3]) for tile in getattr(image, "tile", ())
    )


def _values(image: Image.Image) -> Wide:
    values = np.asarray(image)
    if image.mode == "I" and (int(values.min()) < 0 or int(values.max()) > WHITEST):
        raise Unreadable(
            f"its pixels have 32 bits, {int(values.min())} to {int(values.max())}; 0 to {WHITEST} can be read"
        )
    return values.astype(np.uint16)


def _to_bytes(image: Image.Image, scale: Scale | None) -> Image.Image:
    if scale is None:
        raise Unreadable("its pixels have 16 bits, and the run was agreed on 8")
    return Image.fromarray(scale.to_bytes(_values(image)))


def _fit(image: Image.Image, shape: tuple[int, ...]) -> Image.Image:
    channels, height, width = shape
    coloured = _colour(image, channels)
    if coloured.size != (width, height):
        coloured = coloured.resize((width, height), Image.Resampling.BILINEAR)
    return coloured


def _to_tensor(image: Image.Image, channels: int) -> Tensor:
    values = torch.from_numpy(np.array(image, dtype=np.uint8))
    return values.reshape(image.height, image.width, channels).permute(2, 0, 1)


def _colour(image: Image.Image, channels: int) -> Image.Image:
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    wanted = "L" if channels == 1 else "RGB"
    return image if image.mode == wanted else image.convert(wanted)
