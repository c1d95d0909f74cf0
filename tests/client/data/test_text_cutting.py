"""The one rule that cuts texts into words."""

from __future__ import annotations

from pfl_client.data.text_cutting import cut_words


def test_the_rule_that_cuts_words() -> None:
    """Lower case, one spelling of accents, letters and digits of any script; of a word 64 letters."""
    assert ["café", "3", "mg", "тест", "b_12"] == list(cut_words("Cafe\u0301: 3-mg\n«Тест» b_12"))
    assert ["x" * 64] == list(cut_words("X" * 70))
