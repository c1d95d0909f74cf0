"""Reads `data.json`, in which a site describes its data; it overrules what the program recognises.

{"kind": "image", "layout": "channels_last", "range": [low, high], "values": "unit"}
{"kind": "image", "dicom_window": [centre, width], "groups": "folder"}
{"kind": "windows", "layout": "time_channels"}
{"kind": "tokens", "vocabulary": 32000 | {"hashed": 32000}, "tell_vocabulary": false}
{"kind": "table", "columns": ["age", "weight"]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import TypeAdapter, ValidationError

from pfl_common.errors import DataError, nearest
from pfl_common.spec.data_description import MOST_TOKENS
from pfl_common.spec.run import InputKind, Values

FILE = "data.json"
EXAMPLE = '{"kind": "image", "layout": "channels_last", "range": [0, 4095]}'

PictureLayout: TypeAlias = Literal["channels_last", "channels_first"]
WindowLayout: TypeAlias = Literal["channels_time", "time_channels", "reference"]
"""What the two axes of a window are; `reference` is time x channels, taken for channels x time without being turned: so
did a published program.
"""
Groups: TypeAlias = Literal["folder", "patient"]
"""What says which pictures belong together: a folder between class and picture, or the column `patient` of a list."""
_WORDS: dict[str, tuple[str, ...]] = {
    "kind": get_args(InputKind),
    "layout": (*get_args(PictureLayout), *get_args(WindowLayout)),
    "values": get_args(Values),
    "groups": get_args(Groups),
}
_OF_KIND: dict[str, tuple[str, ...]] = {
    "image": ("layout", "range", "values", "dicom_window", "groups"),
    "array": ("range", "values"),
    "windows": ("layout",),
    "tokens": ("vocabulary", "tell_vocabulary"),
    "table": ("columns",),
}
"""What may be said of each kind beside its name."""


@dataclass(frozen=True)
class Hashed:
    """Words are numbered by their hashes, in a range of `hashed` numbers."""

    hashed: int


@dataclass(frozen=True)
class Declared:
    """The content of `data.json`; None where it says nothing."""

    kind: InputKind | None = None
    layout: PictureLayout | WindowLayout | None = None
    range: tuple[float, float] | None = None
    values: Values | None = None
    vocabulary: int | Hashed | None = None
    tell_vocabulary: bool | None = None
    columns: tuple[str, ...] | None = None
    dicom_window: tuple[float, float] | None = None
    groups: Groups | None = None


_DECLARED = TypeAdapter(Declared)


def read_declared(folder: Path) -> Declared:
    """The content of the folder's `data.json`, checked word by word; empty without such a file."""
    path = folder / FILE
    if not path.is_file():
        return Declared()
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(f"cannot be read: {type(error).__name__}", "JSON in UTF-8") from None
    if not isinstance(said, dict):
        raise _wrong("is no object", "names with their values in { }")
    _check(said)
    said = _imply(said)
    _check_together(said)
    try:
        return _DECLARED.validate_python(said, strict=False)
    except ValidationError as error:
        raise _wrong(f"does not fit together: {error.error_count()} errors", EXAMPLE) from None


def _check(said: Mapping[str, object]) -> None:
    known = (*_WORDS, *_CHECKS)
    for name, value in said.items():
        if name not in known:
            raise _wrong(f"says {name!r}", nearest(name, known))
        if name in _CHECKS:
            _CHECKS[name](value)
        elif value not in _WORDS[name]:
            raise _wrong(f"says {json.dumps(value)[:80]} for {name!r}", nearest(str(value), _WORDS[name]))


def _imply(said: dict[str, object]) -> dict[str, object]:
    """A word that only one kind of data has names the kind too."""
    if "kind" in said:
        return said
    if {"vocabulary", "tell_vocabulary"} & said.keys():
        return {"kind": "tokens", **said}
    if "columns" in said:
        return {"kind": "table", **said}
    return {"kind": "windows", **said} if said.get("layout") in get_args(WindowLayout) else said


def _check_together(said: Mapping[str, object]) -> None:
    kind = said.get("kind")
    if kind is None:
        return
    for name in said.keys() - {"kind", *_OF_KIND[str(kind)]}:
        may = ", ".join(_OF_KIND[str(kind)])
        raise _wrong(f"says {name!r} of data of the kind {kind!r}", f"nothing beside it, or {may}")
    layouts = get_args(WindowLayout if kind == "windows" else PictureLayout)
    if said.get("layout") not in (None, *layouts):
        raise _wrong(f"says {said['layout']!r} for 'layout' of {kind}", " or ".join(layouts))


def _check_range(value: object) -> None:
    ends = value if isinstance(value, list) and all(type(end) in (int, float) for end in value) else []
    if len(ends) != 2 or not all(math.isfinite(end) for end in ends) or not ends[0] < ends[1]:
        raise _wrong(
            f"says {json.dumps(value)[:80]} for 'range'", "two numbers, the smaller first, such as [0, 4095]"
        )


def _check_window(value: object) -> None:
    numbers = (
        value if isinstance(value, list) and all(type(number) in (int, float) for number in value) else []
    )
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)) or numbers[1] < 1:
        raise _wrong(
            f"says {json.dumps(value)[:80]} for 'dicom_window'",
            "the centre and the width of what is shown of DICOM files, the width 1 or more, such as [40, 400]",
        )


def _check_vocabulary(value: object) -> None:
    size = value["hashed"] if isinstance(value, dict) and value.keys() == {"hashed"} else value
    if type(size) is not int or not 3 <= size <= MOST_TOKENS:
        raise _wrong(
            f"says {json.dumps(value)[:80]} for 'vocabulary'",
            f'how many numbers words have (3 to {MOST_TOKENS}), or {{"hashed": 32000}}; words lie in vocabulary.json',
        )


def _check_telling(value: object) -> None:
    if not isinstance(value, bool):
        raise _wrong(f"says {json.dumps(value)[:80]} for 'tell_vocabulary'", "true or false")


def _check_columns(value: object) -> None:
    names = value if isinstance(value, list) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise _wrong(f"says {json.dumps(value)[:80]} for 'columns'", 'a list of names: ["age", "weight"]')
    if len(set(names)) < len(names):
        raise _wrong("names a column twice", "each column once")


_CHECKS: dict[str, Callable[[object], None]] = {
    "range": _check_range,
    "dicom_window": _check_window,
    "vocabulary": _check_vocabulary,
    "tell_vocabulary": _check_telling,
    "columns": _check_columns,
}


def _wrong(seen: str, expected: str) -> DataError:
    return DataError(f"{FILE} {seen}", expected=expected, advice=f"correct it, for example to {EXAMPLE}")
