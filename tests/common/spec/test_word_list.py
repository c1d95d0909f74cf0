"""A list of words that people keep, in the one form that sites compare."""

from __future__ import annotations

import pytest

from pfl_common.spec.word_list import settle_words


def test_the_marks_in_front_are_taken_off() -> None:
    """However they are written, if both are there and words come after."""
    assert ("pain", "fever") == settle_words(["<PAD>", "[unk]", "pain", "fever"])
    assert ("pain",) == settle_words(("pain",))


@pytest.mark.parametrize(
    "words", [["<pad>", "pain"], ["<unk>", "<pad>", "pain"], ["pain", "<unk>"], ["<pad>", "<unk>"]]
)
def test_a_mark_anywhere_else_is_no_word(words: list[str]) -> None:
    """One of the two alone, both in the wrong order, further down, or a list of nothing but marks."""
    with pytest.raises(ValueError, match="first two places or nowhere"):
        settle_words(words)


def test_two_spellings_of_an_accent_are_one_word() -> None:
    """An e with its accent, and an e with an accent after it."""
    assert ("fi\u00e8vre",) == settle_words(["fie\u0300vre"])
    with pytest.raises(ValueError, match="twice"):
        settle_words(["fi\u00e8vre", "fie\u0300vre"])


def test_capitals_make_another_word() -> None:
    """Only marks are compared without them."""
    assert ("US", "us") == settle_words(["US", "us"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no list"),
        ("abc", "no list"),
        ({"a": 1}, "no list"),
        (["a", ""], "something else"),
        (["a", 3], "something else"),
    ],
)
def test_what_is_no_list_of_words(words: object, why: str) -> None:
    """Text is no list of its letters; an empty word is none."""
    with pytest.raises(ValueError, match=why):
        settle_words(words)
