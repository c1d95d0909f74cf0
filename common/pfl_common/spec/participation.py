"""How many sites a round asks, as it is typed and as a run pins it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from pfl_common.errors import SettingError, nearest

SITE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""What a site may be called; a few names are reserved beside (`identity.names`)."""
_DECIMAL_COMMA = re.compile(r"[01]?,\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?")
_AMOUNTS = (
    {"half": "0.5", "third": "0.34", "quarter": "0.25", "tenth": "0.1", "all": "1.0", "everybody": "1.0"}
    | {
        "everyone": "1.0",
        "every": "1.0",
        "full": "1.0",
        "one": "1.0",
        "most": "0.9",
        "some": "0.1..1.0",
        "any": "0.1..1.0",
    }
    | dict.fromkeys(
        ("none", "nobody", "zero", "nan", "inf", "infinity", "true", "false", "auto", "random", "few"), ""
    )
)
"""Words for how many, which are no names of sites; beside each what to write instead."""


@dataclass(frozen=True)
class Participation:
    """How many sites a round asks: a ratio, a range drawn from each round, or a fixed list of names."""

    low: float = 1.0
    high: float = 1.0
    fixed: tuple[str, ...] = ()
    drop: float = 0.0

    @classmethod
    def parse(cls, text: str, *, drop: float = 0.0) -> Self:
        """Read `0.5`, `0.1..1.0` or `site-a,site-b`."""
        ends = [end.strip() for end in text.split("..")]
        if len(ends) <= 2 and all(map(_NUMBER.fullmatch, ends)):
            low, high = float(ends[0]), float(ends[-1])
            if not 0 < low <= high <= 1:
                raise _no_participation(text)
            return cls(low, high, drop=drop)
        names = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
        # A comma makes a name of any word: nobody writes an amount with one.
        meant = "," in text or text.strip().lower() not in _AMOUNTS
        if (
            not names
            or not meant
            or _DECIMAL_COMMA.fullmatch(text.strip())
            or not all(map(SITE_NAME.fullmatch, names))
        ):
            raise _no_participation(text)
        return cls(fixed=names, drop=drop)

    @property
    def text(self) -> str:
        """As it is typed, to be read by people; how many drop out is another rule."""
        if self.fixed:
            return ",".join(self.fixed)
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g}..{self.high:g}"

    def check_roster(self, roster: Iterable[str]) -> None:
        """Refuse a fixed list that names a site which is not there."""
        there = sorted(roster)
        if missing := [name for name in self.fixed if name not in there]:
            raise SettingError(
                f"participation names {', '.join(missing[:5])}, and no such site has come",
                expected=nearest(missing[0], there),
                advice="correct the list, or wait for that site too: --sites",
            )


def _no_participation(text: str) -> SettingError:
    """What was most likely meant, if that can be told."""
    word = text.strip().lower()
    shares = [end.strip().removesuffix("%") for end in word.split("..")]
    meant = _AMOUNTS.get(word, "")
    if "%" in word and all(map(_NUMBER.fullmatch, shares)):
        meant = "..".join(f"{float(share) / 100:g}" for share in shares)
    elif _DECIMAL_COMMA.fullmatch(word):
        meant = f"{word.replace(',', '.')}; if these are sites, with one more comma: {word},"
    return SettingError(
        f"participation is {text[:60]!r}",
        expected="a ratio above 0 and at most 1 (0.5), a rising range (0.1..1.0), or names of sites (a,b)",
        advice=f"write {meant}" if meant else "",
    )
