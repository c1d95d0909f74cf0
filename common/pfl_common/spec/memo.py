"""Caches results that depend on a manifest: a run has few manifests, and each parcel asks the same of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Found = TypeVar("Found")
Words = ParamSpec("Words")

MOST = 256
"""Answers held; beyond them all are forgotten and worked out anew."""


def remembered(work: Callable[Words, Found]) -> Callable[Words, Found]:
    """Decorates what depends on its words alone. The first word is known again as the same object, the others by value:
    hundreds of entries take longer to compare than to look up. Nobody may change what comes out.
    """
    answers: dict[tuple[object, ...], tuple[object, Found]] = {}

    @wraps(work)
    def remember(*words: Words.args, **named: Words.kwargs) -> Found:
        if named:
            raise TypeError(f"{work.__name__} takes its words by place, not by name: {sorted(named)}")
        key = (id(words[0]), *words[1:])
        held = answers.get(key)
        if held is None:
            if len(answers) >= MOST:
                answers.clear()
            # The object is held beside its answer: while it lives, no other can have its number.
            held = answers[key] = words[0], work(*words, **named)
        return held[1]

    return remember
