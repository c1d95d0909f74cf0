"""Reads `data.json`, in which a site describes its data; it overrules what the program recognises.

{"kind": "image", "layout": "channels_last", "range": [low, high], "values": "unit"}
{"kind": "image", "dicom_window": [centre, width], "groups": "folder"}
{"kind": "windows", "layout": "time_channels", "window": 128, "step": 64, "time": "seconds"}
{"kind": "tokens", "vocabulary": 32000 | {"hashed": 32000}, "tell_vocabulary": false}
{"kind": "tokens", "tell_vocabulary": true, "fewest": 5, "label": "diagnosis", "patient": "id"}
{"kind": "table", "columns": ["age", "weight"]}
{"kind": "table", "label": "outcome", "patient": "id", "leave_out": ["name"], "categorical": ["ward"],
 "tell_categories": true | false | {"hashed": 64}, "tell_counts": false, "fewest": 5}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import TypeAdapter, ValidationError

from pfl_client.data.json_file import read_json
from pfl_common.errors import DataError, nearest
from pfl_common.spec.data_description import MOST_HASHED, MOST_TOKENS
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
    "windows": ("layout", "window", "step", "time"),
    "tokens": ("vocabulary", "tell_vocabulary", "label", "patient", "fewest"),
    "table": (
        "columns",
        "label",
        "patient",
        "leave_out",
        "categorical",
        "tell_categories",
        "tell_counts",
        "fewest",
    ),
}
"""What may be said of each kind beside its name."""
OF_ROWS = ("label", "patient", "leave_out", "categorical", "tell_categories", "tell_counts", "fewest")
"""What is said of files of rows alone."""
OF_RECORDINGS = ("window", "step", "time")
"""What is said of recordings alone."""
_OF_TABLES = frozenset({"columns", "leave_out", "categorical", "tell_categories", "tell_counts"})
"""What is said of tables alone."""


@dataclass(frozen=True)
class Hashed:
    """Words are numbered by their hashes, in a range of `hashed` numbers."""

    hashed: int


FEWEST_TOLD = 5
"""Samples, or patients where they are known, that a word or a category occurs in before it is told."""


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
    label: str | None = None
    patient: str | None = None
    leave_out: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    tell_categories: bool | Hashed = True
    tell_counts: bool = True
    fewest: int | None = None
    window: int | None = None
    step: int | None = None
    time: str | None = None

    @property
    def fewest_told(self) -> int:
        """Samples, or patients, that have a word or a category before it is told."""
        return self.fewest or FEWEST_TOLD

    def check_read(self, *, words: Iterable[str], what: str) -> None:
        """Refuse what data.json says, in these words, of a folder that such words mean nothing of."""
        for word in words:
            if getattr(self, word) != getattr(Declared(), word):
                raise _wrong(f"says {word!r}, and the folder holds {what}", "nothing said of it")


_DECLARED = TypeAdapter(Declared)


def read_declared(folder: Path) -> Declared:
    """The content of the folder's `data.json`, checked word by word; empty without such a file."""
    path = folder / FILE
    if not path.is_file():
        return Declared()
    try:
        said = read_json(path)
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
            raise _wrong(f"says {name[:80]!r}", nearest(name[:80], known))
        if name in _CHECKS:
            _CHECKS[name](value)
        elif value not in _WORDS[name]:
            raise _wrong(
                f"says {json.dumps(value)[:80]} for {name!r}", nearest(str(value)[:80], _WORDS[name])
            )


def _imply(said: dict[str, object]) -> dict[str, object]:
    """A word that only one kind of data has names the kind too."""
    if "kind" in said:
        return said
    if {"vocabulary", "tell_vocabulary"} & said.keys():
        return {"kind": "tokens", **said}
    if _OF_TABLES & said.keys():
        return {"kind": "table", **said}
    signals = said.get("layout") in get_args(WindowLayout) or {"window", "step", "time"} & said.keys()
    return {"kind": "windows", **said} if signals else said


def _check_together(said: Mapping[str, object]) -> None:
    kind = said.get("kind")
    if kind is None:
        return
    for name in said.keys() - {"kind", *_OF_KIND[str(kind)]}:
        may = ", ".join(_OF_KIND[str(kind)])
        raise _wrong(f"says {name!r} of data of the kind {kind!r}", f"nothing beside it, or {may}")
    telling = "tell_vocabulary" if kind == "tokens" else "tell_categories"
    if "fewest" in said and said.get(telling, kind == "table") is not True:
        raise _wrong("says 'fewest' of what is not told by name", f"{telling!r}: true beside it")
    layouts = get_args(WindowLayout if kind == "windows" else PictureLayout)
    if said.get("layout") not in (None, *layouts):
        raise _wrong(f"says {said['layout']!r} for 'layout' of {kind}", " or ".join(layouts))


def _check_range(value: object) -> None:
    ends = _read_numbers(value)
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise _wrong(
            f"says {json.dumps(value)[:80]} for 'range'", "two numbers, the smaller first, such as [0, 4095]"
        )


def _read_numbers(value: object) -> list[float]:
    """A list of finite numbers; empty if it is none."""
    listed = isinstance(value, list) and all(type(number) in (int, float) for number in value)
    try:
        numbers = [float(number) for number in value] if isinstance(value, list) and listed else []
    except OverflowError:  # a whole number can be too large for a float
        return []
    return numbers if all(map(math.isfinite, numbers)) else []


def _check_window(value: object) -> None:
    numbers = _read_numbers(value)
    if len(numbers) != 2 or numbers[1] < 1:
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


def _check_truth(name: str) -> Callable[[object], None]:
    def check(value: object) -> None:
        if not isinstance(value, bool):
            raise _wrong(f"says {json.dumps(value)[:80]} for {name!r}", "true or false")

    return check


def _check_categories(value: object) -> None:
    size = value["hashed"] if isinstance(value, dict) and value.keys() == {"hashed"} else None
    if not isinstance(value, bool) and (type(size) is not int or not 2 <= size <= MOST_HASHED):
        raise _wrong(
            f"says {json.dumps(value)[:80]} for 'tell_categories'",
            f'true, false, or how many places hashes of them have (2 to {MOST_HASHED}): {{"hashed": 64}}',
        )


def _check_names(name: str) -> Callable[[object], None]:
    def check(value: object) -> None:
        names = value if isinstance(value, list) else []
        if not names or not all(isinstance(one, str) and one for one in names):
            raise _wrong(f"says {json.dumps(value)[:80]} for {name!r}", 'a list of names: ["age", "weight"]')
        if len(set(names)) < len(names):
            raise _wrong("names a column twice", "each column once")

    return check


def _check_name(name: str) -> Callable[[object], None]:
    def check(value: object) -> None:
        if not isinstance(value, str) or not value:
            raise _wrong(f"says {json.dumps(value)[:80]} for {name!r}", "the name of a column")

    return check


def _check_count(name: str, least: int, most: int) -> Callable[[object], None]:
    def check(value: object) -> None:
        if type(value) is not int or not least <= value <= most:
            raise _wrong(f"says {json.dumps(value)[:80]} for {name!r}", f"a whole number, {least} to {most}")

    return check


LONGEST_WINDOW = 65_536

_CHECKS: dict[str, Callable[[object], None]] = {
    "range": _check_range,
    "dicom_window": _check_window,
    "vocabulary": _check_vocabulary,
    "tell_vocabulary": _check_truth("tell_vocabulary"),
    "columns": _check_names("columns"),
    "label": _check_name("label"),
    "patient": _check_name("patient"),
    "leave_out": _check_names("leave_out"),
    "categorical": _check_names("categorical"),
    "tell_categories": _check_categories,
    "tell_counts": _check_truth("tell_counts"),
    "fewest": _check_count("fewest", 2, 1_000_000),
    "window": _check_count("window", 2, LONGEST_WINDOW),
    "step": _check_count("step", 1, LONGEST_WINDOW),
    "time": _check_name("time"),
}


def _wrong(seen: str, expected: str) -> DataError:
    return DataError(f"{FILE} {seen}", expected=expected, advice=f"correct it, for example to {EXAMPLE}")
