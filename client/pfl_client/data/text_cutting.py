"""Cuts a text into words, by one rule at every site.

The rule: accents in one spelling (NFC), lower case; every run of letters, digits and underscores, of any script, is a
word, and all else stands between words. Of a word the first 64 letters count.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from pfl_common.spec.data_description import LONGEST_WORD

_WORD = re.compile(r"\w+")


def cut_words(text: str) -> Iterator[str]:
    """The words of a text."""
    for found in _WORD.finditer(unicodedata.normalize("NFC", text).lower()):
        yield found[0][:LONGEST_WORD]
