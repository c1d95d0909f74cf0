"""Reads the picture of a DICOM file as 8 bits: rescaled, its window applied, white as white.

Only the tags that say how pixels are stored are ever read. Those that name a patient are skipped in the file, so that
nothing said of a file, and no error, can hold them. Needs pydicom (the extra `medical`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from pfl_common.errors import DataError
from pfl_common.spec.data_description import WHITEST

if TYPE_CHECKING:
    from pydicom import Dataset

_MAGIC, _MAGIC_AT = b"DICM", 128
_GREY, _COLOUR = ("MONOCHROME1", "MONOCHROME2"), ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
_SHAPE = (
    "Rows",
    "Columns",
    "SamplesPerPixel",
    "NumberOfFrames",
    "PhotometricInterpretation",
    "BitsAllocated",
    "BitsStored",
    "PixelRepresentation",
    "WindowCenter",
    "WindowWidth",
    "RescaleSlope",
    "RescaleIntercept",
    "ModalityLUTSequence",
)
_PIXELS = (
    *_SHAPE,
    "HighBit",
    "PlanarConfiguration",
    "VOILUTFunction",
    "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
    "PixelData",
)

Numbers: TypeAlias = npt.NDArray[np.float64]
Pixels: TypeAlias = npt.NDArray[np.uint8]


class Unusable(Exception):
    """The file holds no picture this program can take; the words hold nothing of its tags but numbers."""


@dataclass(frozen=True)
class Window:
    """The values that are told apart: those around the centre, as many as the width; the others are black or white."""

    centre: float
    width: float


@dataclass(frozen=True)
class Head:
    """The size of a picture, and whether its grey levels have to be guessed."""

    shape: tuple[int, int, int]
    """Channels, height, width."""
    windowless: bool
    """It says no window: its smallest value becomes black and its largest white."""


def is_dicom(file: BinaryIO) -> bool:
    """Whether a file says in its first bytes that it is DICOM; it is left at its beginning."""
    begins = file.read(_MAGIC_AT + len(_MAGIC))
    file.seek(0)
    return begins[_MAGIC_AT:] == _MAGIC


def read_head(file: BinaryIO, *, most: int) -> Head:
    """The facts of a picture of at most `most` pixels; its pixels are not read."""
    with _quiet():
        found = _read(file, _SHAPE, most=most, pixels=False)
        channels = 1 if found.PhotometricInterpretation in _GREY else 3
        windowless = channels == 1 and _window_of(found) is None and not _is_plain(found)
        return Head((channels, int(found.Rows), int(found.Columns)), windowless)


def read(file: BinaryIO, *, most: int, window: Window | None = None) -> Pixels:
    """The picture as (height, width) or (height, width, 3); `window` wins over the file's own."""
    with _quiet():
        found = _read(file, _PIXELS, most=most, pixels=True)
        _check_decoder(found)
        from pydicom.pixels.utils import pixel_array

        stored = pixel_array(found)
        if found.PhotometricInterpretation in _COLOUR:
            deep = int(found.BitsStored) - 8
            coloured: Pixels = (stored >> deep if deep > 0 else stored).astype(np.uint8)
            return coloured
        grey = _to_grey(stored, found, window)
        return 255 - grey if found.PhotometricInterpretation == "MONOCHROME1" else grey


def _to_grey(stored: npt.NDArray[np.integer], found: Dataset, window: Window | None) -> Pixels:
    """Computed once for each value that can occur: a picture of 20 million floats would not fit everywhere."""
    shown = window or _window_of(found)
    if shown is None and _is_plain(found):
        return stored.astype(np.uint8)
    from pydicom.pixels.processing import apply_modality_lut

    low, high = int(stored.min()), int(stored.max())
    if high - low > WHITEST:
        raise Unusable(f"it is a DICOM file with pixels of more than 16 bits, {low} to {high}")
    function = "LINEAR" if window else str(found.get("VOILUTFunction") or "LINEAR")
    values = apply_modality_lut(np.arange(low, high + 1), found).astype(np.float64)
    return _to_bytes(values, shown, function)[stored.astype(np.int64) - low]


def _read(file: BinaryIO, tags: tuple[str, ...], *, most: int, pixels: bool) -> Dataset:
    pydicom = _import()
    _check_unpacked(file)
    found: Dataset = pydicom.dcmread(file, specific_tags=list(tags), stop_before_pixels=not pixels)
    if not all(found.get(tag) for tag in ("Rows", "Columns", "PhotometricInterpretation", "BitsAllocated")):
        raise Unusable("it is a DICOM file without a picture")
    frames = int(found.get("NumberOfFrames") or 1)
    if frames != 1:
        raise Unusable(f"it is a DICOM file of {frames} frames; save each as a picture of its own")
    if found.PhotometricInterpretation not in (*_GREY, *_COLOUR):
        raise Unusable("the colours of this DICOM file are neither grey nor RGB nor YBR")
    if int(found.Rows) * int(found.Columns) > most:
        raise Unusable(f"it has more than {most // 10**6} million pixels")
    if pixels and "PixelData" not in found:
        raise Unusable("it is a DICOM file without whole numbers as pixels")
    return found


def _check_unpacked(file: BinaryIO) -> None:
    """Refuse a file whose tags are packed as a whole: the library would unpack it at once, whatever it becomes."""
    from pydicom.filereader import read_file_meta_info
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    if read_file_meta_info(file.name).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
        raise Unusable("it is a DICOM file that is deflated as a whole; save it with another transfer syntax")


def _check_decoder(found: Dataset) -> None:
    """Refuse a compression that no installed package can undo."""
    from pydicom.pixels.decoders.base import get_decoder

    packing = found.file_meta.TransferSyntaxUID
    if not packing.is_compressed:
        return
    try:
        available = get_decoder(packing).is_available
    except NotImplementedError:
        available = False
    if not available:
        raise Unusable(
            f"its DICOM compression ({_show(packing)}) needs a decoder that is not installed: pydicom takes "
            "pylibjpeg or GDCM"
        )


def _show(uid: str) -> str:
    """A number of the standard; what else a file says there is not repeated."""
    return f"transfer syntax {uid}" if uid in _known_packings() else "an unknown one"


def _known_packings() -> Sequence[str]:
    from pydicom.uid import AllTransferSyntaxes

    return AllTransferSyntaxes


def _window_of(found: Dataset) -> Window | None:
    """The first window of the file, if it says one that means something."""
    centre, width = (_first(found.get(tag)) for tag in ("WindowCenter", "WindowWidth"))
    if centre is None or width is None or not np.isfinite(centre) or not np.isfinite(width) or width <= 0:
        return None
    return Window(centre, width)


def _first(value: Any) -> float | None:
    if isinstance(value, str) or not hasattr(value, "__getitem__"):
        return None if value in (None, "") else float(value)
    return float(value[0]) if len(value) else None


def _is_plain(found: Dataset) -> bool:
    """Whether stored values are grey levels from 0 to 255 already."""
    rescaled = (
        float(found.get("RescaleSlope") or 1) != 1
        or float(found.get("RescaleIntercept") or 0) != 0
        or "ModalityLUTSequence" in found
    )
    return not rescaled and int(found.BitsStored) == 8 and not int(found.get("PixelRepresentation") or 0)


def _to_bytes(values: Numbers, window: Window | None, function: str) -> Pixels:
    """Values in grey levels, by the formulas of the standard (PS3.3, C.11.2.1)."""
    if window is None:
        low, high = float(values.min()), float(values.max())
        share = (values - low) / ((high - low) or 1)
    elif function == "SIGMOID":
        share = 1 / (1 + np.exp(np.clip(-4 * (values - window.centre) / window.width, -700, 700)))
    elif function == "LINEAR_EXACT" or window.width <= 1:
        share = (values - window.centre) / window.width + 0.5
    else:
        share = (values - (window.centre - 0.5)) / (window.width - 1) + 0.5
    grey: Pixels = np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)
    return grey


def _import() -> Any:
    try:
        import pydicom
    except ImportError:
        raise DataError(
            "the data are DICOM files, and pydicom is not installed",
            expected="the optional extra `medical`",
            advice="pip install 'pfl-net[medical]'",
        ) from None
    return pydicom


@contextmanager
def _quiet() -> Iterator[None]:
    """While open, pydicom says nothing: its warnings and errors repeat the values they are about."""
    logger = logging.getLogger("pydicom")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Unusable, DataError, PermissionError, MemoryError):
        raise
    except Exception:
        raise Unusable("it is a DICOM file that is damaged, cut short, or unlike the standard") from None
    finally:
        logger.setLevel(before)
