"""Command-line errors in the form of all other errors: seen, expected, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any  # the library's errors carry what they have, without a public type

import typer
from pydantic import ValidationError

from pfl_common.app.config import read_number, spell
from pfl_common.errors import SettingError

WrongUsage: type[Exception] = typer.BadParameter.__bases__[0]
"""All that can be wrong with what was typed; the library has no public name for it."""

_NO_COMMAND = re.compile(r"No such command '(?P<word>.*?)'")
_EXTRA = re.compile(r"Got unexpected extra argument(s|\(s\))? \((?P<words>.*)\)")
_LACKS_VALUE = re.compile(r"Option '(?P<option>.*?)' requires an argument")
_BOUNDS = {
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}",
}
_SHOWN = 60


def words_of(wrong: Any, program: str) -> SettingError:
    """The error as a person is told it."""
    context, message = wrong.ctx, wrong.format_message()
    page = f"see {context.command_path if context is not None else program} --help"
    if getattr(wrong, "param", None) is not None:
        return _of_value(wrong, page)
    if found := _LACKS_VALUE.search(message):
        return SettingError(
            f"{found['option']} is given without a value", expected="one after it", advice=page
        )
    if message.startswith("No such option"):
        return SettingError(
            f"there is no option {wrong.option_name[:_SHOWN]}",
            expected=_near_option(wrong.option_name, context),
            advice=page,
        )
    if found := _NO_COMMAND.search(message):
        known = context.command.list_commands(context)
        return SettingError(
            f"there is no command {found['word'][:_SHOWN]!r}",
            expected=_near(found["word"], known),
            advice=page,
        )
    if found := _EXTRA.search(message):
        return SettingError(
            f"nothing is expected where {found['words'][:_SHOWN]!r} stands",
            expected="options, each with two dashes before its name",
            advice=page,
        )
    return SettingError(message.rstrip("."), advice=page)


def _of_value(wrong: Any, page: str) -> SettingError:
    """A value that is missing or of no use."""
    param, cause = wrong.param, wrong.__cause__
    name = (
        max(param.opts, key=len)
        if param.opts[0].startswith("-")
        else (param.metavar or str(param.name)).strip("[]").upper()
    )
    if wrong.format_message().startswith("Missing"):
        return SettingError(f"{name} is missing", expected=str(param.help or ""), advice=page)
    if not isinstance(cause, ValidationError):
        return SettingError(f"{name}: {wrong.message.rstrip('.')}", advice=page)
    first = cause.errors(include_url=False)[0]
    return SettingError(
        f"{name} is {str(first['input'])[:_SHOWN]!r}",
        expected=_say_expected(first),
        advice=_say_meant(first) or page,
    )


def _say_expected(error: Mapping[str, Any]) -> str:
    kind = error["type"]
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**error.get("ctx", {}))
    return (
        "a whole number"
        if kind.startswith("int_")
        else "a number"
        if kind.startswith("float_")
        else error["msg"]
    )


def _say_meant(error: Mapping[str, Any]) -> str:
    """`50%` where a number is taken is 0.5."""
    whole, number = error["type"] == "int_parsing", read_number(str(error["input"]))
    if error["type"] not in ("int_parsing", "float_parsing") or number is None:
        return ""
    return "" if whole and not number.is_integer() else f"write {spell(number)}"


def _near_option(wrong: str, context: Any) -> str:
    options = (
        [] if context is None else [name for p in context.command.get_params(context) for name in p.opts]
    )
    return _near(wrong, [name for name in options if name.startswith("--")])


def _near(wrong: str, known: list[str]) -> str:
    """The nearest words, or all there are if none is near."""
    close = difflib.get_close_matches(wrong, known, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else "one of " + ", ".join(sorted(known))
