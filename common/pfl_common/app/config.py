"""Text to typed settings: an unknown or ill-typed setting names the nearest right one."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
import os
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import (
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)  # Any: a dataclass's fields have no narrower type

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from pfl_common.errors import SettingError, nearest
from pfl_common.spec.rules import RoundRules, terms_of
from pfl_common.spec.run import Json

T = TypeVar("T")
Port: TypeAlias = Annotated[int, Field(ge=0, le=65535)]
"""Of TCP; 0 takes a free one. A larger number would be taken for its remainder, and nobody told."""
_BOUNDS = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, defer_build=True)
"""For every class of settings: an unknown one is an error, a number is finite. A class is made ready when the first of
its settings are, because a program declares more of them than it uses.
"""


@dataclass(frozen=True)
class Why:
    """Gives the reason for a field's bounds, in the field's type; an error about the field quotes it."""

    words: str


R = TypeVar("R", bound=RoundRules)


def held_to_terms(kind: type[R]) -> type[R]:
    """Below the `dataclass` of settings that are rules too: what is asked for has to keep the rules' bounds."""
    hints, declared = get_type_hints(kind.__base__, include_extras=True), dataclasses.fields(kind)
    bounded = {
        one.name: Annotated[hints[one.name], terms.check, Why(terms.why)]
        for one in declared
        if (terms := terms_of(one)).check is not None
    }
    kind.__annotations__ = bounded | kind.__annotations__
    return kind


_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "path_type": "a path",
    "dict_type": "settings by name, each with its value",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
}
"""What pydantic misses, by its own name for that, as a hospital's engineer would say it; numbers are told by `span`."""
_SHOWN = 60
"""Characters of a wrong value that are shown: it may be a whole file."""


def settle(kind: type[T], given: Mapping[str, Json | str], *, what: str) -> T:
    """Make settings of a kind from what the user gave; the rest keeps its default."""
    fields = alias_table(kind)
    for name in given:
        if name not in fields:
            lacking = "there is" if _is_program(what) else f"{what} has"
            raise SettingError(
                f"{lacking} no setting {_shorten(name)}", expected=nearest(name[:_SHOWN], fields)
            )
    values = {fields[name]: _split(kind, fields[name], value) for name, value in given.items()}
    for name, value in values.items():
        # A language's truth is a number to it, and never what was meant: `epochs = true` is no 1.
        if isinstance(value, bool) and is_number(field_of(kind, name)):
            raise _refusal(kind, (name,), value, what=what)
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise _in_words(kind, error, what) from None


def refuse_idle(settings: object, *names: str, beside: str) -> None:
    """Refuse settings that are not at their defaults where they have no effect: nobody is to take one for a result's
    cause.
    """
    for name in names:
        if getattr(settings, name) != getattr(type(settings), name):
            word = name.removesuffix("_")
            raise SettingError(
                f"{word} was given without {beside}",
                expected=f"{word} beside {beside} only: elsewhere it has no effect",
                advice=f"add {beside}, or leave {word} out",
            )


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
            raise SettingError(
                f"--set got {_shorten(pair)}", expected="name=value, for example --set lambda=40"
            )
        result[name.strip().replace("-", "_")] = value.strip()
    return result


def _split(kind: type[Any], name: str, value: Json | str) -> Json | str:
    """A list given as text (`0,1,1,0`) is cut at its commas when the field is a tuple."""
    annotation = str(next(f.type for f in dataclasses.fields(kind) if f.name == name))
    if isinstance(value, str) and "tuple[" in annotation:
        return [part.strip() for part in value.strip("()[] ").split(",") if part.strip()]
    return value


def field_of(kind: type[Any], name: str) -> FieldInfo | None:
    """A field's declaration: its type and its bounds."""
    found: dict[str, FieldInfo] = getattr(kind, "__pydantic_fields__", {})
    return found.get(name)


def documentation(kind: type[Any], name: str) -> str:
    """A field's meaning in one line; a field that only changes a default inherits the text of its base class."""
    texts = (_read_texts(one).get(name, "") for one in kind.__mro__ if dataclasses.is_dataclass(one))
    return next((" ".join(text.split()) for text in texts if text), "")


@cache
def _read_texts(kind: type[Any]) -> Mapping[str, str]:
    """The text below each field of a class. It is read from the source when somebody wants to see it: that takes longer
    than all else of declaring settings, which every program does at its start.
    """
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:  # no source: a class from a prompt
        return {}
    lines = pairwise(body.body if isinstance(body, ast.ClassDef) else ())
    return {
        field.target.id: below.value.value
        for field, below in lines
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def is_number(field: FieldInfo | None) -> bool:
    """Whether a setting takes one number."""
    return field is not None and _kinds(field) in ({int}, {float})


def _kinds(field: FieldInfo) -> set[Any]:
    """The types a field takes, but for its having none."""
    return {*(get_args(field.annotation) or [field.annotation])} - {type(None)}


def span(field: FieldInfo) -> str:
    """The numbers a setting takes, in words: `a whole number from 1 to 1000`."""
    kind = "a whole number" if int in _kinds(field) else "a number"
    found = {name: spell(getattr(m, name)) for m in field.metadata for name in _BOUNDS if hasattr(m, name)}
    if {"ge", "le"} <= found.keys():
        if found["ge"] == found["le"]:
            return f"{found['ge']} alone"
        return f"{kind} from {found['ge']} to {found['le']}"
    bounds = " and ".join(_BOUNDS[name].format(found[name]) for name in _BOUNDS if name in found)
    return f"{kind}, {bounds}" if bounds else kind


def spell(number: float) -> str:
    """A number as one would type it."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e16 else f"{number:g}"


def _in_words(kind: type[Any], error: ValidationError, what: str) -> SettingError:
    first = error.errors(include_url=False)[0]
    place, value, said = first["loc"], first["input"], _tell_expected(first)
    listed = _list_form(field_of(kind, str(place[0]))) if place and first["type"] != "value_error" else ""
    if listed and (len(place) == 1 or first["type"] == "missing"):
        # It is the list that is wrong, not one of its values: shown as it is typed.
        typed = isinstance(value, list) and all(isinstance(one, str) for one in value)
        place, value, said = place[:1], ",".join(value) if typed else value, listed
    elif listed:
        said = f"{said}; {listed}"
    return _refusal(kind, place, value, what=what, said=said)


def _tell_expected(found: Mapping[str, Any]) -> str:
    if found["type"] == "literal_error":
        return str(found["ctx"]["expected"])
    said = str(found["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return _EXPECTED.get(found["type"], said)


def _list_form(field: FieldInfo | None) -> str:
    """How a list is written: `4 values, as 0,1,1,0`; empty for a setting that is no list."""
    if field is None or get_origin(field.annotation) is not tuple:
        return ""
    kinds, default = get_args(field.annotation), field.default
    number = "values with commas between" if Ellipsis in kinds else f"{len(kinds)} values"
    shown = (
        [str(int(one) if isinstance(one, bool) else one) for one in default]
        if isinstance(default, tuple)
        else []
    )
    return f"{number}, as {','.join(shown)}" if shown else number


def _refusal(
    kind: type[Any], place: tuple[int | str, ...], value: object, *, what: str, said: str = ""
) -> SettingError:
    """The value seen, and the values that the setting takes and why."""
    # Two steps lead to a method's setting or one of a list; what follows is the library's own.
    name = ".".join(str(part).removesuffix("_") for part in place[:2])
    owner = "" if _is_program(what) else f"{what}: "
    field, advice = field_of(kind, str(place[0])) if place else None, ""
    if field is not None and is_number(field):
        why = next((m.words for m in field.metadata if isinstance(m, Why)), "")
        said = span(field) + (f": {why}" if why else "")
    if field is not None and _kinds(field) & {int, float}:
        advice = _nearest_form(field, value)
    seen = f"{owner}setting {name!r} is {_shorten(value)}{'' if owner else _tell_origin(name, value)}"
    return SettingError(seen, expected=said, advice=advice)


def _tell_origin(name: str, value: object) -> str:
    """Nobody sees what stands in the environment: a wrong word from there is said to be from there."""
    return f", in the environment as {key}" if os.environ.get(key := f"PFL_{name.upper()}") == value else ""


def _nearest_form(field: FieldInfo, value: object) -> str:
    """`50%` is 0.5, `0,5` as well, and `1e3` a whole number: how to write what was most likely meant."""
    number = read_number(value) if isinstance(value, str) else None
    if number is None:
        return ""
    taken: Any = Annotated[field.annotation, *field.metadata]
    try:
        return f"write {spell(TypeAdapter(taken).validate_python(number))}"
    except ValidationError:
        return ""


def read_number(text: str) -> float | None:
    """The number somebody means who writes 50%, 0,5 or 1e3; None if it is none."""
    bare = text.strip()
    share = bare.endswith("%")
    try:
        number = float(bare.removesuffix("%").strip().replace(",", ".", 1)) / (100 if share else 1)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _shorten(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _is_program(what: str) -> bool:
    """A program's name stands before each of its errors already."""
    return what.startswith("pfl-")


def layered(kind: type[Any], flags: Mapping[str, Any], file: Path | None, *, prefix: str) -> dict[str, Any]:
    """The user's input, strongest first: flags, the TOML file, the environment (`PFL_ROUNDS=5`)."""
    names = alias_table(kind)
    environment = {n: os.environ[key] for n in names if (key := f"{prefix}{n.upper()}") in os.environ}
    return (
        environment | _read_toml(file) | {name: value for name, value in flags.items() if value is not None}
    )


def _read_toml(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        return {name.replace("-", "_"): value for name, value in said.items()}
    except OSError as error:
        raise SettingError(f"--config {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(f"--config {file} is not TOML: it is not written in UTF-8") from None
    except RecursionError:
        raise SettingError(f"--config {file} is not TOML: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"--config {file} is not TOML: {error}") from None
