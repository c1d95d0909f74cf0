"""Settings and policies with names that are right and values of another kind, beyond all bounds, or twice there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any  # a setting's value is of any type

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pfl_client.policy.rules import SECTIONS
from pfl_client.settings import ClientSettings
from pfl_common import methods
from pfl_server.settings import ServerSettings
from tests.fuzz import odd
from tests.fuzz.shape import Shape, shape

_TYPED = st.sampled_from(
    (
        *(
            "5",
            "0.5",
            "true",
            "2G",
            "0B",
            "a,b",
            "majority",
            "0.1..1.0",
            "1e-9",
            "30s",
            "1 week",
            "::1",
            "0.0.0.0/33",
        ),
        *(
            "auto",
            "none",
            "flip,rotate(30)",
            "flip,,",
            "rotate(1e999)",
            "a=1",
            "0x1F",
            "١٢",
            "1_000",
            "+1",
            "[1,2",
        ),
    )
)
_VALUES = st.one_of(_TYPED, odd.scalars, odd.anything)
_DEEP = b"[" * 3000


def _name_all(kind: type[Any]) -> list[str]:
    return [one.name.removesuffix("_") for one in fields(kind)]


def _tables(names: list[str], values: SearchStrategy[Any] = _VALUES) -> SearchStrategy[dict[str, Any]]:
    unknown = st.sampled_from([name.replace("_", "-") for name in names]) | odd.words
    return st.dictionaries(st.sampled_from(names) | unknown, values, max_size=4)


@shape("toml")
def build_toml() -> Shape:
    """A file of settings, of either program."""
    names = [*_name_all(ServerSettings), *_name_all(ClientSettings)]
    tables = _tables(names).map(_write_table)
    nested = st.sampled_from(names).map(lambda name: name.encode() + b" = " + _DEEP)
    twice = tables.map(lambda table: table + table)
    return tables | nested | twice


@shape("environment")
def build_value() -> Shape:
    """One value, which every setting gets."""
    return (_TYPED | odd.words | odd.anything.map(json.dumps)).map(partial(str.encode, errors="replace"))


@shape("set")
def build_pairs() -> Shape:
    """Pairs as --set has them, or who takes part."""
    names = _name_all(methods.load("dualfed").config)
    asked = st.sampled_from(
        ["1e-9", "0.9999999", "0.1..1.0", "0..0", "a,b", "1e-08", "NaN", "..", "half", "50%"]
    )
    return _tables(names).map(_write_pairs) | asked.map(str.encode)


def _write_pairs(table: Mapping[str, Any]) -> bytes:
    pairs = (
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in table.items()
    )
    return "\n".join(pairs).encode(errors="replace")


_RULES = {
    "methods": [["fedavg"], [], ["fedavg", "fedavg"], "fedavg", ["no"], [[]]],
    "sums": ["any", "robust", "secure", "ANY", True],
    "largest": ["20M", "", "0", "-1M", "1e999G", "9" * 400 + "T", 20],
    "class_names": ["yes", "hashed", "no", False],
    "counts": ["exact", "rounded", "none", 0],
}


@shape("policy")
def build_policy() -> Shape:
    """Sections with rules of their own, of others and of nobody; and a rule outside of all."""
    sections = st.dictionaries(
        st.sampled_from(sorted(SECTIONS)) | odd.words,
        st.one_of([_rules_of(kind) for kind in SECTIONS.values()]),
        max_size=4,
    )
    loose = st.dictionaries(st.sampled_from(["methods", "rounds", "runs"]), odd.scalars, max_size=1)
    written = st.tuples(loose, sections).map(_write_policy)
    deep = st.sampled_from([_DEEP, b"[runs]\nmethods = " + _DEEP, b"a" + b".a" * 3000 + b" = 1"])
    return written | deep


def _rules_of(kind: type[Any]) -> SearchStrategy[dict[str, Any]]:
    meant = [value for name in _name_all(kind) for value in _RULES.get(name, [])] or [True]
    return _tables(_name_all(kind), odd.one_of(meant) | st.booleans() | st.integers(0, 9) | odd.anything)


def _write_policy(parts: tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]) -> bytes:
    loose, sections = parts
    body = (b"[" + _quote(name) + b"]\n" + _write_table(rules) for name, rules in sections.items())
    return b"\n".join([_write_table(loose), *body])


def _write_table(table: Mapping[str, Any]) -> bytes:
    return b"".join(_quote(name) + b" = " + _write(value).encode() + b"\n" for name, value in table.items())


def _quote(name: str) -> bytes:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return (name if plain else json.dumps(name)).encode()


def _write(value: Any) -> str:
    """A value as TOML; what TOML has no form for is left out, which is no TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(json.dumps(value), repr(value))
        case dict():
            inner = (f"{json.dumps(name)} = {_write(one)}" for name, one in value.items())
            return "{" + ", ".join(inner) + "}"
        case list():
            return "[" + ", ".join(map(_write, value)) + "]"
        case None:
            return ""
        case _:
            return json.dumps(value)
