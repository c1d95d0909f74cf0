"""Random draws as pure functions: the same words give the same number on any machine.

No generator state is carried along: each draw names what it is for (run seed, site, round, purpose).
Without torch, so that the clockless parts of the coordinator can use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from heapq import nsmallest

_SPAN = 1 << 63


def derive(*words: int | str) -> int:
    """A number of 63 bits from a list of words, which are kept apart: ("a", "bc") is not ("ab", "c")."""
    return _number(_digest(words))


def _digest(words: Iterable[int | str]) -> hashlib._Hash:
    digest = hashlib.sha256()
    for word in words:
        digest.update(_spell(word))
    return digest


def _spell(word: int | str) -> bytes:
    text = f"{type(word).__name__}:{word}".encode()
    return len(text).to_bytes(4, "big") + text


def _number(digest: hashlib._Hash) -> int:
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def uniform(*words: int | str) -> float:
    """A number in [0, 1)."""
    return derive(*words) / _SPAN


def whole(low: int, high: int, *words: int | str) -> int:
    """A whole number from low to high, both included."""
    return low + derive(*words) % (high - low + 1)


def choose(names: Iterable[str], count: int, *words: int | str) -> list[str]:
    """Draw some names without replacement; the order names come in does not matter."""
    # The number of a name is that of the words and the name; what all have in common is hashed once.
    common = _digest(words)

    def rank(name: str) -> tuple[int, str]:
        own = common.copy()
        own.update(_spell(name))
        return _number(own), name

    return sorted(nsmallest(count, set(names), key=rank))
