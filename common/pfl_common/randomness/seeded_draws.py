"""Random draws as pure functions: the same words give the same number on any machine.

No generator state is carried along: each draw names what it is for (run seed, site, round, purpose).
Without torch, so that the clockless parts of the coordinator can use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from heapq import nsmallest

_SPAN = 1 << 63


def derive(*words: int | str) -> int:
    """A number of 63 bits from a list of words, which are kept apart: ("a", "bc") is not ("ab", "c")."""
    return _number(_digest(words).digest())


def _digest(words: Iterable[int | str]) -> hashlib._Hash:
    digest = hashlib.sha256()
    for word in words:
        digest.update(_spell(word))
    return digest


def _spell(word: int | str) -> bytes:
    text = f"{type(word).__name__}:{word}".encode()
    return len(text).to_bytes(4, "big") + text


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big") >> 1


def uniform(*words: int | str) -> float:
    """A number in [0, 1)."""
    return derive(*words) / _SPAN


def whole(low: int, high: int, *words: int | str) -> int:
    """A whole number from low to high, both included."""
    return low + derive(*words) % (high - low + 1)


def choose(names: Iterable[str], count: int, *words: int | str) -> list[str]:
    """Draw some names without replacement; the order names come in does not matter. Those with the smallest numbers
    are drawn, where the number of a name is that of the words and the name.
    """
    common, spelled = _digest(words), _spell_each(tuple(names))
    digests = []
    for spelling in spelled.values():
        # What all have in common is hashed once: of ten thousand names each costs a quarter of a microsecond.
        own = common.copy()
        own.update(spelling)
        digests.append(own.digest())
    # Digests are in the order of their numbers. Of those that share the last number drawn the names decide.
    last = max(nsmallest(count, digests), default=bytes(32))
    end = last[:7] + bytes([last[7] | 1]) + b"\xff" * 24
    near = zip(digests, spelled, strict=True)
    ranked = sorted((_number(digest), name) for digest, name in near if digest <= end)
    return sorted(name for _, name in ranked[:count])


@lru_cache(maxsize=4)
def _spell_each(names: tuple[str, ...]) -> dict[str, bytes]:
    """By name, each once. A run draws from the same names round after round."""
    return {name: _spell(name) for name in names}
