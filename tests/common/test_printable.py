"""What a terminal would obey is shown as its number; what people write with stays as it is."""

from __future__ import annotations

import pytest

from pfl_common.printable import is_printable, printable, set_in
from tests.common.support.terminal_attacks import ATTACKS, list_obeyed


@pytest.mark.parametrize("words", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_seen_and_shown(words: str) -> None:
    """It is no printable text; shown, it is one, which does not change by being shown again."""
    shown = printable(words)
    assert (False, True, []) == (is_printable(words), is_printable(shown), list_obeyed(shown))
    assert "\n" not in shown
    assert shown == printable(shown)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "stage II [b]",
        "Straße",
        "猫\u3000犬",
        "\u0642\u0644\u0628",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "क\u094d\u200dष",
        "❤\ufe0f",
        "a\u00a0b",
        "e\u0301",
    ],
)
def test_what_people_write_stays(words: str) -> None:
    """Letters of all scripts, with the joiners that some cannot be written without."""
    assert (True, words) == (is_printable(words), printable(words))


@pytest.mark.parametrize("words", ["\u200c", "a\u200cb", "\u200c\u0645", "\u0645\u200c", "a\u200db"])
def test_a_joiner_where_nothing_is_joined(words: str) -> None:
    """Elsewhere it only makes two equal names of two."""
    assert not is_printable(words)


def test_some_signs_are_kept_when_asked() -> None:
    """An error has lines; nothing else in it is obeyed."""
    assert "a\nb\\x1bc" == printable("a\nb\x1bc", keep="\n")


def test_lines_of_an_error_are_set_in() -> None:
    """None but the first can look like a line of a log."""
    assert "a\n  b\n  c\\x1b\n   d" == set_in("a\nb\n  c\x1b\n   d\n")
