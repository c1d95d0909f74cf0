"""Recognises a site's arrays: pictures, texts, windows, tables or plain numbers; their channel axis and range.

Recognised from type and shape; what could be read in two ways is refused, and `data.json` says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from pfl_client.data.declaration import EXAMPLE, Declared
from pfl_client.data.findings import KIND_OF_VALUES
from pfl_common.errors import DataError
from pfl_common.spec.data_description import MOST_TOKENS
from pfl_common.spec.run import InputKind, Values

CHANNELS = (1, 3)
SMALLEST_SIDE = 8
"""Of pictures that are recognised by their shape."""
FORMS = (
    "pictures as uint8, uint16 or float (N, height, width, 1 or 3) or (N, 1 or 3, height, width), those of whole "
    "numbers also as (N, height, width); texts as whole numbers (N, words) with a vocabulary.json; tables as floats "
    "(N, columns); or other numbers as float32 (N, ...)"
)

Pictured: TypeAlias = Literal["grey", "channels_last", "channels_first"]
Windowed: TypeAlias = Literal["channels_time", "time_channels", "reference"]
Arrangement: TypeAlias = Pictured | Windowed | Literal["tokens", "table", "none"]
PICTURED: tuple[Pictured, ...] = get_args(Pictured)
WINDOWED: tuple[Windowed, ...] = get_args(Windowed)
# Whatever the site has put into its file, until it is checked.
Column: TypeAlias = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Form:
    """The recognised form of samples."""

    arrangement: Arrangement
    values: Values = "numbers"
    low: float = 0.0
    high: float = 0.0

    @property
    def is_image(self) -> bool:
        """Whether samples are pictures, which can be resized."""
        return self.arrangement in PICTURED

    @property
    def has_channels(self) -> bool:
        """Whether the first number of a sample's shape counts its channels."""
        return self.is_image or self.arrangement in WINDOWED

    @property
    def kind(self) -> InputKind:
        """The kind of the samples, as other sites are told."""
        if self.has_channels:
            return "image" if self.is_image else "windows"
        return "array" if self.arrangement == "none" else cast(Literal["tokens", "table"], self.arrangement)


def recognise(x: Column, declared: Declared, *, file: str, words: bool = False) -> Form:
    """The form of an array by its type and shape, unless the site declares it; with a list of `words` it is texts."""
    kind = "tokens" if words else declared.kind
    if kind in ("tokens", "windows", "table"):
        return Form(_recognise_numbers(x, kind, declared, file=file))
    whole = x.dtype in (np.uint8, np.uint16)
    known = whole or x.dtype.kind == "f" or (declared.kind == "array" and x.dtype.kind in "iu")
    if not known or x.ndim < 2 or (declared.kind == "image" and x.ndim not in (3, 4)):
        raise DataError(
            f"x of {file} is {x.dtype}{x.shape}",
            expected=FORMS,
            advice='save it in one of these forms, or say in data.json what it is: {"kind": "table"}',
        )
    found = _kind(x, declared, file=file)
    if found in ("array", "table"):
        return Form("none" if found == "array" else "table")
    said = cast(Pictured | None, declared.layout)
    arrangement: Pictured = "grey" if x.ndim == 3 else said or _find_channels(x, declared, file=file)
    channels = {"channels_last": x.shape[-1], "channels_first": x.shape[1]}.get(arrangement, 1)
    if channels not in CHANNELS:
        raise DataError(
            f"x of {file} is {x.dtype}{x.shape}, with {channels} channels by the layout {arrangement!r}",
            expected="pictures of 1 or 3 channels",
            advice='check "layout" in data.json, or have them read as numbers: {"kind": "array"}',
        )
    return Form(arrangement, {"uint8": "bytes", "uint16": "wide"}.get(x.dtype.name, "signed"))  # type: ignore[arg-type]


def _recognise_numbers(
    x: Column, kind: Literal["tokens", "windows", "table"], declared: Declared, *, file: str
) -> Arrangement:
    types, axes = _NUMBERS[kind]
    if x.dtype.kind not in types or x.ndim != len(axes) or not all(x.shape[1:]):
        what = "whole numbers" if kind == "tokens" else "numbers"
        raise DataError(
            f"x of {file} is {x.dtype}{x.shape}, and the data are {kind}",
            expected=f"{what} ({', '.join(axes)})",
            advice=f'save it so, or correct "kind" in data.json{_OR_WORDS if kind == "tokens" else ""}',
        )
    if kind != "windows":
        return kind
    # Windows are longer than they have sensors; two equal sides could be either.
    layout = declared.layout or ("channels_time" if x.shape[1] < x.shape[2] else "time_channels")
    if declared.layout is None and x.shape[1] == x.shape[2]:
        raise DataError(
            f"x of {file} is {x.dtype}{x.shape}: which axis is time cannot be told",
            expected='"layout" in data.json',
            advice='say {"kind": "windows", "layout": "channels_time"}, or "time_channels"',
        )
    return cast(Windowed, layout)


_NUMBERS = {
    "tokens": ("iu", ("N", "words")),
    "windows": ("fiu", ("N", "channels", "time")),
    "table": ("fiub", ("N", "columns")),
}
"""By kind: types of numbers, axes."""
_OR_WORDS = ", or take vocabulary.json away"


def _arrange_numbers(x: Column, form: Form, *, file: str) -> Column:
    """Texts as whole numbers, windows as channels x time."""
    if form.arrangement == "time_channels":
        return x.transpose(0, 2, 1)
    if form.arrangement == "reference":
        return x.reshape(len(x), x.shape[2], x.shape[1])
    if form.arrangement != "tokens" or not x.size:
        return x
    numbers = cast(npt.NDArray[np.integer], x)
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= MOST_TOKENS:
        raise DataError(
            f"x of {file} has numbers from {low} to {high}",
            expected=f"numbers of words, 0 to {MOST_TOKENS - 1}; 0 is padding, 1 is an unknown word",
            advice="number the words of the list from 2",
        )
    return x


def arrange(x: Column, form: Form, *, file: str) -> Column:
    """Pictures and windows with channels first, texts as whole numbers, other numbers as float32: each finite."""
    x = _arrange_numbers(x, form, file=file)
    if form.arrangement == "tokens":
        return np.ascontiguousarray(x.astype(np.int32))
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


def _kind(x: Column, declared: Declared, *, file: str) -> InputKind:
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
        return "table" if x.ndim == 2 else "array"
    sides = {"last": x.shape[1:3], "first": x.shape[2:4]}
    ends = {"last": x.shape[3] in CHANNELS, "first": x.shape[1] in CHANNELS}
    if any(ends[end] and min(sides[end]) >= SMALLEST_SIDE for end in ends):
        return "image"
    if any(ends.values()):
        raise _ambiguous(x, file)
    return "array"


def _find_channels(x: Column, declared: Declared, *, file: str) -> Pictured:
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
