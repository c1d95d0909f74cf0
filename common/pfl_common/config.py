"""Text to typed settings: an unknown or ill-typed setting names the nearest right one."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar  # Any: a dataclass's fields have no narrower type

from pydantic import Field, TypeAdapter, ValidationError

from pfl_common.errors import SettingError, nearest
from pfl_common.run import Json

T = TypeVar("T")
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
"""Of TCP; 0 takes a free one. A larger number would be taken for its remainder, and nobody told."""

_BOUNDS = ("ge", "gt", "le", "lt")
_EXPECTED = {
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
}
"""What pydantic misses, by its own name for that, as a hospital's engineer would say it."""


def settle(kind: type[T], given: Mapping[str, Json | str], *, what: str) -> T:
    """Make settings of a kind from what the user gave; the rest keeps its default."""
    fields = alias_table(kind)
    for name in given:
        if name not in fields:
            lacking = "there is" if _is_program(what) else f"{what} has"
            raise SettingError(f"{lacking} no setting {name!r}", expected=nearest(name, fields))
    values = {fields[name]: _split(kind, fields[name], value) for name, value in given.items()}
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise _in_words(error, what) from None


def alias_table(kind: type[Any]) -> dict[str, str]:
    """Names a user may write, to field names: `lambda` reaches the field `lambda_`."""
    return {field.name.removesuffix("_"): field.name for field in dataclasses.fields(kind)}


def dump(settings: Any) -> dict[str, Json]:
    """Settings as plain values under the names a user writes, ready for a specification."""
    plain: dict[str, Json] = json.loads(json.dumps(dataclasses.asdict(settings)))
    return {name.removesuffix("_"): value for name, value in plain.items()}


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Read `--set name=value` options."""
    result = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise SettingError(f"--set got {pair!r}", expected="name=value, for example --set lambda=40")
        result[name.strip().replace("-", "_")] = value.strip()
    return result


def _split(kind: type[Any], name: str, value: Json | str) -> Json | str:
    """A list given as text (`0,1,1,0`) is cut at its commas when the field is a tuple."""
    annotation = str(next(f.type for f in dataclasses.fields(kind) if f.name == name))
    if isinstance(value, str) and "tuple[" in annotation:
        return [part.strip() for part in value.strip("()[] ").split(",") if part.strip()]
    return value


def _in_words(error: ValidationError, what: str) -> SettingError:
    first = error.errors()[0]
    name = ".".join(str(part).removesuffix("_") for part in first["loc"])
    owner = "" if _is_program(what) else f"{what}: "
    bounds = {bound: f"{value:g}" for bound, value in first.get("ctx", {}).items() if bound in _BOUNDS}
    ours = _EXPECTED.get(first["type"], "").format(**bounds)
    return SettingError(
        f"{owner}setting {name!r} is {first['input']!r}",
        expected=ours or first["msg"].removeprefix("Value error, "),
    )


def _is_program(what: str) -> bool:
    """A program's name stands before each of its errors already."""
    return what.startswith("pfl-")


def layered(kind: type[Any], flags: Mapping[str, Any], file: Path | None, *, prefix: str) -> dict[str, Any]:
    """What the user gave, strongest first: flags, the TOML file, the environment (`PFL_ROUNDS=5`)."""
    names = alias_table(kind)
    environment = {n: os.environ[key] for n in names if (key := f"{prefix}{n.upper()}") in os.environ}
    return (
        environment | _read_toml(file) | {name: value for name, value in flags.items() if value is not None}
    )


def _read_toml(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return {name.replace("-", "_"): value for name, value in tomllib.loads(file.read_text()).items()}
    except OSError as error:
        raise SettingError(f"--config {file} cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"--config {file} is not TOML: {error}") from None
