"""The options of a command that are rules of a run's rounds, made from the rules: none is declared a second time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import (  # Any: typed words are of any type
    Annotated,
    Any,
    Literal,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from pfl_common.app.completion import complete_from
from pfl_common.spec.rules import AskedRules, terms_of


@dataclass(frozen=True)
class RuleOptions:
    """In the type of a command's parameter: the options of these rules stand here, or of all that stand nowhere else.

    The parameter itself is what was typed of them, by name.
    """

    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupedOptions:
    """The same for options of one subject that are no rules: each by its name and its type, as typer wants it."""

    types: tuple[tuple[str, Any], ...]


Typed: TypeAlias = Mapping[str, Any] | None
"""What was typed of some rules, by name. A command declares None, and is always called with the mapping."""


def taking_rules(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option a rule wherever it has a parameter for `RuleOptions`."""
    shape = inspect.signature(command, eval_str=True)
    grouped = _find_groups(shape)
    groups = {place: tuple(name for name, _ in group.types) for place, group in grouped.items()}
    places, types = {**_name_rules(shape), **groups}, dict(pair for g in grouped.values() for pair in g.types)

    @functools.wraps(command)
    def run(**typed: Any) -> None:
        given = {place: {name: typed.pop(name) for name in names} for place, names in places.items()}
        command(**typed, **given)

    options = [
        option
        for place, parameter in shape.parameters.items()
        for option in (
            (_make_option(name, types) for name in places[place]) if place in places else (parameter,)
        )
    ]
    # What typer reads a command's options from.
    vars(run)["__signature__"] = shape.replace(parameters=options)
    return run


def flatten(given: Mapping[str, Any]) -> dict[str, Any]:
    """A command's words by name, with those of its rules among them."""
    plain: dict[str, Any] = {}
    for name, value in given.items():
        plain.update(value if isinstance(value, dict) else {name: value})
    return plain


def _name_rules(shape: inspect.Signature) -> dict[str, tuple[str, ...]]:
    """Which rules stand in which place."""
    kinds = {name: get_args(parameter.annotation) for name, parameter in shape.parameters.items()}
    places = {name: one for name, kind in kinds.items() for one in kind if isinstance(one, RuleOptions)}
    taken = {name for place in places.values() for name in place.names}
    others = tuple(one.name for one in fields(AskedRules) if one.name not in taken)
    return {name: place.names or others for name, place in places.items()}


def _find_groups(shape: inspect.Signature) -> dict[str, GroupedOptions]:
    """Which groups stand in which place."""
    kinds = {name: get_args(parameter.annotation) for name, parameter in shape.parameters.items()}
    return {name: one for name, kind in kinds.items() for one in kind if isinstance(one, GroupedOptions)}


def _make_option(name: str, types: Mapping[str, Any]) -> inspect.Parameter:
    """Not typed it is None: a file or the environment may name it."""
    if name in types:
        return inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=types[name]
        )
    declared = next(one for one in fields(AskedRules) if one.name == name)
    kind: Any = get_type_hints(AskedRules)[name]
    words = get_args(kind) if get_origin(kind) is Literal else ()
    option = typer.Option(
        help=terms_of(declared).sentence, autocompletion=complete_from(words) if words else None
    )
    taken = kind if kind in (int, float, bool) else str
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[taken | None, option],
    )
