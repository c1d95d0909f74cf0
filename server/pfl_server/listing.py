"""The methods, and one method with the meaning of each of its settings: `--list-methods`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from typing import Literal, cast, get_args, get_origin

from pydantic.fields import FieldInfo
from rich.console import Console

from pfl_common import methods
from pfl_common.config import documentation, dump, field_of, is_number, span
from pfl_common.halves import Settings
from pfl_common.methods import Method
from pfl_common.run import Json

_SYMBOL = re.compile(r"(?P<symbol>\S{1,8}): (?P<rest>.*)", re.DOTALL)
"""A setting's documentation begins with its symbol in the paper, if it has one."""


def list_all() -> list[Json]:
    """Every method with its defaults and presets, as plain values."""
    return [_brief(methods.load(name)) for name in methods.names()]


def describe(name: str) -> dict[str, Json]:
    """One method as plain values: what it does, each setting with symbol, default, range and meaning, presets."""
    method = methods.load(name)
    kind = method.config
    about = method.doc.strip().partition("\n")[2].strip()
    own = dump(method.settle({}))
    settings: list[Json] = [_setting(kind, field.name, own) for field in fields(kind)]
    return _brief(method) | {"about": about, "settings": settings}


def show_all(console: Console) -> None:
    """Every method: what it does, what can be set, and presets."""
    for name in methods.names():
        method = methods.load(name)
        defaults = ", ".join(f"{n}={_typed(v)}" for n, v in dump(method.settle({})).items())
        _print(console, f"{name}  {_title(method)}", indent=0)
        _print(console, f"settings: {defaults}", indent=4)
        for preset, values in method.presets.items():
            _print(console, f"--preset {preset}: {_pairs(values)}", indent=4)
    _print(console, "What each setting means: pfl-server --list-methods NAME", indent=0)


def show_one(name: str, console: Console) -> None:
    """One method: its page, its settings, its presets."""
    told = describe(name)
    console.print(f"{told['title']}\n\n{told['about']}\n", markup=False)
    for row in cast("list[dict[str, Json]]", told["settings"]):
        symbol = f" ({row['symbol']})" if row["symbol"] else ""
        _print(console, f"{row['name']}{symbol} = {_typed(row['default'])}: {row['takes']}", indent=0)
        _print(console, str(row["means"]), indent=4)
    for preset, values in methods.load(name).presets.items():
        _print(console, f"--preset {preset} sets {_pairs(values)}", indent=0)
    _print(console, f"Change one: pfl-server --method {name} --set lr=0.05", indent=0)


def _print(console: Console, text: str, *, indent: int) -> None:
    """A paragraph in lines of the terminal's width; a name is never cut."""
    lines = textwrap.wrap(
        text,
        max(40, console.width),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4 if indent == 0 else indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print("\n".join(lines), markup=False)


def _brief(method: Method) -> dict[str, Json]:
    presets: dict[str, Json] = {name: dict(values) for name, values in method.presets.items()}
    return {
        "method": method.name,
        "title": _title(method),
        "defaults": dump(method.settle({})),
        "presets": presets,
        "shows": method.shows,
    }


def _setting(kind: type[Settings], name: str, defaults: Mapping[str, Json]) -> Json:
    field, word = field_of(kind, name), name.removesuffix("_")
    words = documentation(kind, name)
    found = _SYMBOL.match(words)
    symbol, means = (found["symbol"], found["rest"]) if found else ("", words)
    takes = _takes(field) if field is not None else ""
    return {"name": word, "symbol": symbol, "default": defaults[word], "takes": takes, "means": means}


def _takes(field: FieldInfo) -> str:
    """The range of a number, the words of a choice, or the kind."""
    if is_number(field):
        return span(field)
    if get_origin(field.annotation) is Literal:
        return " | ".join(get_args(field.annotation))
    if get_origin(field.annotation) is tuple:
        return f"{len(get_args(field.annotation))} times true or false, with commas"
    return "true | false" if field.annotation is bool else "text"


def _title(method: Method) -> str:
    return method.doc.strip().partition("\n")[0]


def _pairs(values: Mapping[str, Json]) -> str:
    return ", ".join(f"{name}={_typed(value)}" for name, value in values.items())


def _typed(value: Json) -> str:
    """A value as one would type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_typed, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
