"""Signs that a terminal or a page would obey instead of showing: which they are, and text in which they are only shown.

Names of classes and words of peers reach terminals, logs and pages. A control sequence among them could rewrite what
stands there, one that turns the direction of writing could make one name look like another.
"""

from __future__ import annotations

import re
import unicodedata

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Controls; what steers the layout (direction, width zero); halves of signs; ends of lines and paragraphs."""
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u3164\uffa0")
"""Letters and marks without a shape: two names that look alike may differ by them."""
_JOINERS = "\u200c\u200d"
_VIRAMA = 9
"""The combining class of the sign after which scripts of India need a joiner."""
_ODD = re.compile(r"[^ -~]")
"""Signs that have to be looked at: all that no typewriter has."""


def is_printable(text: str) -> bool:
    """Whether each sign is shown and none is obeyed. The joiners that Persian and Indian scripts are written with
    are taken where those scripts need them, as names in the internet take them (RFC 5892, A.1 and A.2).
    """
    return not any(_is_obeyed(text, odd.start()) for odd in _ODD.finditer(text))


def printable(text: str, *, keep: str = "") -> str:
    """The same text with each sign that would be obeyed written as its number, but for those to `keep`."""
    if not _ODD.search(text):
        return text

    def show(odd: re.Match[str]) -> str:
        obeyed = odd[0] not in keep and _is_obeyed(text, odd.start())
        return odd[0].encode("unicode_escape").decode() if obeyed else odd[0]

    return _ODD.sub(show, text)


def set_in(text: str) -> str:
    """A text of several lines, all but the first set in, so that none of a peer's words looks like a line of a log."""
    first, *others = printable(text.rstrip("\n"), keep="\n").split("\n")
    return "\n".join([first, *(line if line.startswith("  ") else f"  {line}" for line in others)])


def _is_obeyed(text: str, place: int) -> bool:
    sign = text[place]
    if sign in _BLANK_LETTERS:
        return True
    return unicodedata.category(sign) in _UNSEEN and not _is_joiner(text, place)


def _is_joiner(text: str, place: int) -> bool:
    """Whether this sign is a joiner that the letters around it are written with."""
    if text[place] not in _JOINERS or not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place + 1 : place + 2]
    if unicodedata.combining(before) == _VIRAMA:
        return True
    return (
        text[place] == _JOINERS[0]
        and after != ""
        and unicodedata.bidirectional(before) == unicodedata.bidirectional(after) == "AL"
    )
