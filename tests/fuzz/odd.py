"""Values that nobody means: what structured inputs are made hostile with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # JSON has no narrower type

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

WIDEST = 10**4000
"""Written in full it is longer than Python writes the product of two such numbers."""


def one_of(values: Sequence[Any]) -> SearchStrategy[Any]:
    """One of these. Hypothesis writes strategies out, so values that are long are told by their places."""
    return st.integers(0, len(values) - 1).map(lambda place: values[place])


numbers = one_of(
    (
        *(0, -1, 1, 2, 3, 255, 65_536, 100_000, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63),
        *(2**64 - 1, 2**64, -(2**63), 10**18, 10**400, -(10**400), WIDEST),
    )
) | st.integers(-3, 300)
reals = st.sampled_from(
    (
        *(0.0, -0.0, 0.5, 1.0, -1.0, 5e-324, 1e-30, 1e38, 3.5e38, 1e308, -1e308),
        *(float("nan"), float("inf"), float("-inf")),
    )
) | st.floats(width=32)
words = one_of(
    (
        *(
            "",
            " ",
            "\0",
            "a\0b",
            "..",
            "../../etc/passwd",
            "/etc/passwd",
            "C:\\x",
            "\x1b[2J\x07",
            "a\r\nb",
            "%s%n",
        ),
        *(
            "\u202egnp.exe",
            "a\u200bb",
            "\ufeff",
            "e\u0301",
            "nan",
            "-1",
            "1e999",
            "0x10",
            "true",
            "{}",
            "[[",
            "=",
        ),
        *("x" * 101, "x" * 300, "é" * 5000, "9" * 5000, "a" * 60_000, "\u4e2d" * 21_000),
    )
) | st.text(max_size=6)
halves = st.sampled_from(["\ud800", "a\udfff"])
"""Halves of signs: JSON can name them, and no file can hold them."""
scalars = st.one_of(st.none(), st.booleans(), numbers, reals, words, halves)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
_MANY = (2, 3, 17, 70, 300)


def like(value: object) -> SearchStrategy[Any]:
    """An odd value of the same kind, so that more than the first check sees it."""
    match value:
        case bool():
            return st.booleans()
        case int():
            return numbers
        case float():
            return reals
        case str():
            return words
        case _:
            return anything


@st.composite
def nearly(draw: DrawFn, value: Any, *, most: int = 3) -> Any:
    """A value of JSON with a few places changed: another value there, none, many, or one that nobody knows."""
    for _ in range(draw(st.integers(0, most))):
        value = _change(draw, value)
    return value


def _change(draw: DrawFn, value: Any) -> Any:
    if isinstance(value, dict | list) and value and draw(st.integers(0, 7)):
        changed = value.copy()
        place = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
        if draw(st.integers(0, 3)):
            changed[place] = _change(draw, value[place])
        else:
            draw(st.sampled_from(_WAYS))(draw, changed, place)
        return changed
    return draw(like(value) if draw(st.integers(0, 3)) else anything)


def _remove(_: DrawFn, changed: Any, place: Any) -> None:
    del changed[place]


def _repeat(draw: DrawFn, changed: Any, place: Any) -> None:
    count = draw(st.sampled_from(_MANY))
    if isinstance(changed, list):
        changed[place:place] = [changed[place]] * count
    else:
        changed.update({f"{place}{number}": changed[place] for number in range(count)})


def _swap(draw: DrawFn, changed: Any, place: Any) -> None:
    other = draw(st.sampled_from(list(changed) if isinstance(changed, dict) else range(len(changed))))
    changed[place], changed[other] = changed[other], changed[place]


def _add(draw: DrawFn, changed: Any, _: Any) -> None:
    if isinstance(changed, list):
        changed.append(draw(anything))
    else:
        changed[draw(words)] = draw(anything)


def _wrap(draw: DrawFn, changed: Any, place: Any) -> None:
    changed[place] = draw(
        st.sampled_from([[changed[place]], {"value": changed[place]}, str(changed[place])[:99]])
    )


_WAYS: tuple[Callable[[DrawFn, Any, Any], None], ...] = (_remove, _repeat, _swap, _add, _wrap)
