"""Words as a hostile peer would choose them: each does something to a terminal that is not looked for."""

from __future__ import annotations

import unicodedata

ATTACKS = {
    "clears the screen": "\x1b[2J\x1b[H",
    "colours what follows": "\x1b[31mred",
    "one byte for CSI": "\x9b2J",
    "a link to elsewhere": "\x1b]8;;http://elsewhere.example\x07here\x1b]8;;\x07",
    "the window's title": "\x1b]0;root\x1b\\",
    "writes over the line": "all is well\rnothing is",
    "a line of its own": "seen\n2026-01-01T00:00:00Z [info     ] all is well",
    "another end of line": "seen\u2028all is well",
    "turns the direction": "safe\u202egpj.exe",
    "an isolate": "\u2066safe\u2069",
    "without width": "ca\u200bt",
    "half a sign": "\ud800",
    "a bell and a backspace": "\x07\x08",
    "a blank letter": "cat\u3164",
}
"""By what each does."""


def list_obeyed(text: str) -> list[str]:
    """The signs of a text that would be obeyed, but for ends of lines: counted here without the product's own code."""
    return [
        sign
        for sign in text
        if sign == "\u3164" or (sign != "\n" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    ]
