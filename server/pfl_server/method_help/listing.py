"""`--list-methods`: all methods, or one method with the meaning of each setting."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Annotated, Any, Literal, cast, get_args, get_origin  # Any: a setting's type

from pydantic.fields import FieldInfo
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pfl_common import methods
from pfl_common.app.config import documentation, dump, field_of, is_number, span
from pfl_common.learning.method import Settings
from pfl_common.methods import Method
from pfl_common.spec.run import Json
from pfl_server.method_help.explanation import read_words, say_encoding, say_robust

WIDE = 140
"""Columns from which on a table is easier to read than paragraphs."""
_SYMBOL = re.compile(r"(?P<symbol>\S{1,8}): (?P<rest>.*)", re.DOTALL)
"""A setting's documentation begins with its symbol in the paper, if it has one."""


def list_all() -> list[Json]:
    """Every method with its defaults and presets, as plain values."""
    return [_brief(methods.load(name)) for name in methods.list_names()]


def describe(name: str) -> dict[str, Json]:
    """One method as plain values: what it does, each setting with symbol, default, range and meaning, presets."""
    method = methods.load(name)
    kind = method.config
    about = method.doc.strip().partition("\n\n")[2].strip()
    own = dump(method.settle({}))
    settings: list[Json] = [_setting(kind, field.name, own) for field in fields(kind)]
    more: dict[str, Json] = {"about": about, "settings": settings, "about_presets": _about_presets(name)}
    return _brief(method) | more


def show_all(console: Console) -> None:
    """Every method: what it does, what travels and what stays, whether sums suffice."""
    if console.width >= WIDE:
        console.print(_table(), soft_wrap=False)
    else:
        for name in methods.list_names():
            _show_narrow(methods.load(name), console)
    _print(console, "Settings, presets, departures from the paper: pfl-server --list-methods NAME", indent=0)
    _print(console, "What it costs and when to choose it: pfl-server --explain NAME", indent=0)


def _table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), expand=True)
    table.add_column("method", no_wrap=True)
    for title, ratio in (("", 4), ("travels", 5), ("stays", 5)):
        table.add_column(title, ratio=ratio)
    table.add_column("sums suffice", no_wrap=True)
    table.add_column("--robust", no_wrap=True)
    for name in methods.list_names():
        method = methods.load(name)
        words = read_words(method.doc)
        # Sums or not is one word here: why not is a sentence of its own, on the method's page.
        cells = (
            shorten(words.sentence),
            shorten(words.travels),
            shorten(words.stays),
            _sums(method),
            say_robust(method)[:3].rstrip(":"),
        )
        table.add_row(_name(method), *(escape(cell) for cell in cells))
    return table


def _show_narrow(method: Method, console: Console) -> None:
    words = read_words(method.doc)
    _print(console, f"{_name(method)}: {words.sentence}", indent=0)
    sums = "sums suffice" if _sums(method) == "yes" else "sums do not suffice"
    robust = "--robust is possible" if say_robust(method) == "yes" else "--robust is not possible"
    told = f"travels: {shorten(words.travels)}; stays: {shorten(words.stays)}; {sums}; {robust}"
    _print(console, told, indent=4)


def _name(method: Method) -> str:
    """Its name, and for one from outside the package that it comes from."""
    return f"{method.name} ({method.package})" if method.package else method.name


def _sums(method: Method) -> str:
    return "no" if method.shows else "yes"


def shorten(text: str) -> str:
    """The first sentence, without its stop; `Eq. 3` ends none."""
    return re.split(r"(?<!Eq)(?<!Sec)(?<!App)\.(?:\s|$)", text, maxsplit=1)[0]


def show_one(name: str, console: Console) -> None:
    """One method: its page, its settings, its presets."""
    told = describe(name)
    console.print(f"{told['title']}\n\n{told['about']}\n", markup=False)
    if "package" in told:
        _print(console, f"From the installed package {told['package']}.", indent=0)
    for row in cast("list[dict[str, Json]]", told["settings"]):
        symbol = f" ({row['symbol']})" if row["symbol"] not in ("", row["name"]) else ""
        _print(console, f"{row['name']}{symbol} = {_typed(row['default'])}: {row['takes']}", indent=0)
        _print(console, str(row["means"]), indent=4)
    for preset, values in methods.load(name).presets.items():
        _print(console, f"--preset {preset} sets {_pairs(values)}", indent=0)
    if told["about_presets"]:
        _print(console, str(told["about_presets"]), indent=4)
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


def _about_presets(name: str) -> str:
    """The text below PRESETS in a method's file: whose values they are."""
    body = ast.parse(inspect.getsource(methods.load(name).module)).body
    for line, below in pairwise(body):
        is_presets = isinstance(line, ast.AnnAssign | ast.Assign) and "PRESETS" in _targets(line)
        if is_presets and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return " ".join(str(below.value.value).split())
    return ""


def _targets(line: ast.AnnAssign | ast.Assign) -> list[str]:
    targets = line.targets if isinstance(line, ast.Assign) else [line.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _brief(method: Method) -> dict[str, Json]:
    words = read_words(method.doc)
    presets: dict[str, Json] = {name: dict(values) for name, values in method.presets.items()}
    brief: dict[str, Json] = {
        "method": method.name,
        "title": f"{words.title}: {words.sentence}",
        "sentence": words.sentence,
        "travels": words.travels,
        "stays": words.stays,
        "sums_suffice": not method.shows,
        "robust": say_robust(method),
        "encoding": say_encoding(method),
        "defaults": dump(method.settle({})),
        "presets": presets,
        "shows": method.shows,
    }
    return brief | ({"package": str(method.package)} if method.package else {})


def _setting(kind: type[Settings], name: str, defaults: Mapping[str, Json]) -> Json:
    field, word = field_of(kind, name), name.removesuffix("_")
    words = documentation(kind, name)
    found = _SYMBOL.match(words)
    symbol, means = (found["symbol"], found["rest"]) if found else ("", words)
    takes = _takes(field) if field is not None else ""
    return {"name": word, "symbol": symbol, "default": defaults[word], "takes": takes, "means": means}


def _takes(field: FieldInfo) -> str:
    """The range of a number, the words of a choice, or the kind; whether it may be left to the method (null)."""
    takes = _takes_given(field)
    return f"{takes}, or null" if type(None) in get_args(field.annotation) else takes


def _takes_given(field: FieldInfo) -> str:
    if is_number(field):
        return span(field)
    kinds = get_args(field.annotation)
    if get_origin(field.annotation) is Literal:
        return " | ".join(map(_typed, kinds)) if len(kinds) > 1 else f"nothing but {_typed(kinds[0])}"
    if get_origin(field.annotation) is tuple:
        return _takes_list(kinds)
    return "true | false" if field.annotation is bool else "text"


def _takes_list(kinds: tuple[Any, ...]) -> str:
    many = Ellipsis in kinds
    one = {bool: "true or false", int: "a whole number", float: "a number"}.get(_bare(kinds[0]), "text")
    if many:
        return f"{one}, or several with commas"
    return f"{len(kinds)} times {one}, with commas"


def _bare(kind: Any) -> Any:
    """A type without its bounds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _pairs(values: Mapping[str, Json]) -> str:
    return ", ".join(f"{name}={_typed(value)}" for name, value in values.items())


def _typed(value: Json) -> str:
    """A value as one would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_typed, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
