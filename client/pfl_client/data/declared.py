"""What a site says of its data in `data.json`, where looking at them does not tell: it wins over what is recognised.

{"kind": "image" | "array", "layout": "channels_last" | "channels_first", "range": [low, high], "values": "unit"}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import TypeAdapter, ValidationError

from pfl_common.errors import DataError, nearest
from pfl_common.run import Values

FILE = "data.json"
EXAMPLE = '{"kind": "image", "layout": "channels_last", "range": [0, 4095]}'

Kind: TypeAlias = Literal["image", "array"]
Layout: TypeAlias = Literal["channels_last", "channels_first"]
_WORDS: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "layout": get_args(Layout),
    "values": get_args(Values),
}


@dataclass(frozen=True)
class Declared:
    """What was said; None: nothing."""

    kind: Kind | None = None
    layout: Layout | None = None
    range: tuple[float, float] | None = None
    values: Values | None = None


_DECLARED = TypeAdapter(Declared)


def read_declared(folder: Path) -> Declared:
    """What the folder's `data.json` says, checked word by word; a folder without one says nothing."""
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
    try:
        return _DECLARED.validate_python(said, strict=False)
    except ValidationError as error:
        raise _wrong(f"does not fit together: {error.error_count()} errors", EXAMPLE) from None


def _check(said: Mapping[str, object]) -> None:
    known = (*_WORDS, "range")
    for name, value in said.items():
        if name not in known:
            raise _wrong(f"says {name!r}", nearest(name, known))
        if name == "range":
            _check_range(value)
        elif value not in _WORDS[name]:
            raise _wrong(f"says {json.dumps(value)[:80]} for {name!r}", nearest(str(value), _WORDS[name]))


def _check_range(value: object) -> None:
    ends = value if isinstance(value, list) and all(type(end) in (int, float) for end in value) else []
    if len(ends) != 2 or not all(math.isfinite(end) for end in ends) or not ends[0] < ends[1]:
        raise _wrong(
            f"says {json.dumps(value)[:80]} for 'range'", "two numbers, the smaller first, such as [0, 4095]"
        )


def _wrong(seen: str, expected: str) -> DataError:
    return DataError(f"{FILE} {seen}", expected=expected, advice=f"correct it, for example to {EXAMPLE}")
