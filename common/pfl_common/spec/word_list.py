"""Brings word lists that people keep to one form: no marks, one spelling of accents, each word once."""

from __future__ import annotations

import unicodedata
from collections import Counter

MARKS = ({"<pad>", "[pad]", "<padding>"}, {"<unk>", "[unk]", "<unknown>"})
"""What lists of words have in their first two places, if they have them at all: padding, unknown words."""


def settle_words(words: object) -> tuple[str, ...]:
    """The words of a list; ValueError says in words what is wrong with it."""
    if not isinstance(words, list | tuple) or not words:
        raise ValueError("no list of words")
    if not all(isinstance(word, str) and word for word in words):
        raise ValueError("a list with something else than words in it")
    plain = [unicodedata.normalize("NFC", word) for word in words]
    marked = [word.casefold() in marks for word, marks in zip(plain, MARKS, strict=False)]
    if len(plain) > len(MARKS) and all(marked):
        plain = plain[len(MARKS) :]
    for word, count in Counter(plain).items():
        if any(word.casefold() in marks for marks in MARKS):
            raise ValueError(
                f"a list with {word!r} among its words: it stands in the first two places or nowhere"
            )
        if count > 1:
            raise ValueError(f"a list with {word[:60]!r} twice")
    return tuple(plain)
