"""What a site's arrays are: pictures or plain numbers, where the channels lie, how numbers are stored.

Recognised from type and shape; what could be read in two ways is refused, and `data.json` says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pfl_client.data.declared import EXAMPLE, Declared, Kind
from pfl_client.data.findings import KIND_OF_VALUES
from pfl_common.errors import DataError
from pfl_common.run import Values

CHANNELS = (1, 3)
SMALLEST_SIDE = 8
"""Of pictures that are recognised by their shape."""
FORMS = (
    "pictures as uint8, uint16 or float (N, height, width, 1 or 3) or (N, 1 or 3, height, width), those of whole "
    "numbers also as (N, height, width), or numbers as float32 (N, ...)"
)

Arrangement: TypeAlias = Literal["grey", "channels_last", "channels_first", "none"]
# Whatever the site has put into its file, until it is checked.
Column: TypeAlias = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Form:
    """What samples are."""

    arrangement: Arrangement
    values: Values = "numbers"
    low: float = 0.0
    high: float = 0.0

    @property
    def is_image(self) -> bool:
        """Whether samples are pictures, which can be resized."""
        return self.arrangement != "none"


def recognise(x: Column, declared: Declared, *, file: str) -> Form:
    """What the array is by its type and shape, if the site does not say it."""
    whole = x.dtype in (np.uint8, np.uint16)
    known = whole or x.dtype.kind == "f" or (declared.kind == "array" and x.dtype.kind in "iu")
    if not known or x.ndim < 2 or (declared.kind == "image" and x.ndim not in (3, 4)):
        raise DataError(
            f"x of {file} is {x.dtype}{x.shape}", expected=FORMS, advice="save it in one of these forms"
        )
    if _kind(x, declared, file=file) == "array":
        return Form("none")
    arrangement = "grey" if x.ndim == 3 else declared.layout or _find_channels(x, declared, file=file)
    channels = {"channels_last": x.shape[-1], "channels_first": x.shape[1]}.get(arrangement, 1)
    if channels not in CHANNELS:
        raise DataError(
            f"x of {file} is {x.dtype}{x.shape}, with {channels} channels by the layout {arrangement!r}",
            expected="pictures of 1 or 3 channels",
            advice='check "layout" in data.json, or have them read as numbers: {"kind": "array"}',
        )
    return Form(arrangement, {"uint8": "bytes", "uint16": "wide"}.get(x.dtype.name, "signed"))  # type: ignore[arg-type]


def arrange(x: Column, form: Form, *, file: str) -> Column:
    """Pictures with channels first, other numbers as float32; every float has to be finite."""
    if form.arrangement == "grey" and x.ndim == 3:
        x = x[:, None]
    if form.arrangement == "channels_last" and x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    if form.values in ("bytes", "wide"):
        return np.ascontiguousarray(x)
    with np.errstate(over="ignore"):  # what overflows is infinite and found by the next line
        numbers = np.ascontiguousarray(x.astype(np.float32))
    odd = (~np.isfinite(numbers)).reshape(len(numbers), -1).any(1)
    if odd.any():
        raise DataError(
            f"x of {file} holds NaN or infinity in {int(odd.sum())} of {len(x)} samples, "
            f"first in sample {int(odd.argmax()) + 1}",
            expected="finite numbers that float32 can hold",
            advice="fill in or remove these samples",
        )
    return numbers


def find_range(x: Column) -> tuple[float, float]:
    """The smallest and the largest number."""
    return float(x.min()), float(x.max())


def classify(form: Form, declared: Declared) -> Values:
    """How numbers are stored: floats by the range they have, or are said to have."""
    fixed = form.values in ("bytes", "wide", "numbers")
    if declared.values is not None and declared.values != form.values:
        floats = ("unit", "byte_floats", "signed")
        if fixed or declared.values not in floats:
            raise DataError(
                f"data.json says {declared.values!r} for 'values', and the arrays hold {KIND_OF_VALUES[form.values]}",
                expected=f"{form.values!r}" if fixed else f"one of {', '.join(floats)}",
                advice="correct it, or remove it: it is recognised",
            )
        return declared.values
    if fixed:
        return form.values
    if form.low >= 0 and form.high <= 1:
        return "unit"
    return "byte_floats" if form.low >= 0 and form.high <= 255 else "signed"


def _kind(x: Column, declared: Declared, *, file: str) -> Kind:
    if declared.kind is not None:
        return declared.kind
    if x.dtype in (np.uint8, np.uint16):
        if x.ndim not in (3, 4):
            raise DataError(
                f"x of {file} is {x.dtype}{x.shape}",
                expected=FORMS,
                advice='save it in one of these forms, or have it read as numbers: {"kind": "array"} in data.json',
            )
        return "image"
    if x.ndim != 4:
        return "array"
    sides = {"last": x.shape[1:3], "first": x.shape[2:4]}
    ends = {"last": x.shape[3] in CHANNELS, "first": x.shape[1] in CHANNELS}
    if any(ends[end] and min(sides[end]) >= SMALLEST_SIDE for end in ends):
        return "image"
    if any(ends.values()):
        raise _ambiguous(x, file)
    return "array"


def _find_channels(x: Column, declared: Declared, *, file: str) -> Arrangement:
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    large = {"first": min(x.shape[2:4]) >= SMALLEST_SIDE, "last": min(x.shape[1:3]) >= SMALLEST_SIDE}
    if last and (not first or large["last"] or x.dtype == np.uint8):
        return "channels_last"
    if first and (large["first"] or (declared.kind == "image" and not last)):
        return "channels_first"
    raise _ambiguous(x, file)


def _ambiguous(x: Column, file: str) -> DataError:
    return DataError(
        f"x of {file} is {x.dtype}{x.shape}: small pictures, or numbers that are none",
        expected=FORMS,
        advice=f'say which in data.json: {{"kind": "array"}}, or for pictures such as {EXAMPLE}',
    )
