"""Changes bytes by chance: the driver for machines without atheris, and for the ordinary tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

One = TypeVar("One")

MOST_CHANGES = 6
LONGEST = 1 << 16
"""Bytes of an input: what is wrong with longer ones is wrong with shorter ones too."""
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
_SIGNS = (b"\x00", b"\n", b'"', b"{", b"}", b"[", b"]", b",", b"-", b"\xff", "\u202e".encode(), b"\x1b")


class Chance:
    """Draws that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def below(self, end: int) -> int:
        """A number from 0 on, less than this."""
        return int(self._draw.integers(end))

    def choice(self, some: Sequence[One]) -> One:
        """One of these."""
        return some[self.below(len(some))]

    def happens(self, share: float) -> bool:
        """True so often."""
        return bool(self._draw.random() < share)


def mutate(rng: Chance, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A seed, or another one's end behind its beginning, with a few changes."""
    content = bytearray(rng.choice(seeds)[:LONGEST])
    if rng.happens(0.1):
        other = rng.choice(seeds)[:LONGEST]
        content[rng.below(len(content) + 1) :] = other[rng.below(len(other) + 1) :]
    for _ in range(1 + rng.below(MOST_CHANGES)):
        rng.choice(_CHANGES)(rng, content, words)
    return bytes(content[:LONGEST])


def inputs(seed: int, seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> Iterator[bytes]:
    """The seeds, then changed ones without end; the same of the same seed."""
    yield from seeds
    yield b""
    rng = Chance(seed)
    while True:
        yield mutate(rng, seeds or [b""], words)


def _place(rng: Chance, content: bytearray) -> int:
    # Formats say most in their first bytes.
    reach = min(len(content), 64) if rng.happens(0.4) else len(content)
    return rng.below(max(1, reach))


def _flip(rng: Chance, content: bytearray, _: Sequence[bytes]) -> None:
    if content:
        content[_place(rng, content)] ^= 1 << rng.below(8)


def _set(rng: Chance, content: bytearray, _: Sequence[bytes]) -> None:
    if content:
        content[_place(rng, content)] = rng.below(256)


def _number(rng: Chance, content: bytearray, _: Sequence[bytes]) -> None:
    width, at = rng.choice((1, 2, 4, 8)), _place(rng, content)
    number = rng.choice(_NUMBERS) & ((1 << 8 * width) - 1)
    content[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))


def _cut(rng: Chance, content: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, content)
    del content[at : at + rng.choice((1, 2, 8, 64, len(content)))]


def _repeat(rng: Chance, content: bytearray, _: Sequence[bytes]) -> None:
    at = _place(rng, content)
    content[at:at] = bytes(content[at : at + rng.choice((1, 4, 16, 64))]) * rng.choice((1, 2, 8, 256))


def _insert(rng: Chance, content: bytearray, words: Sequence[bytes]) -> None:
    at = _place(rng, content)
    content[at:at] = rng.choice((*_SIGNS, *words)) * rng.choice((1, 1, 1, 40))


def _replace(rng: Chance, content: bytearray, words: Sequence[bytes]) -> None:
    word, at = rng.choice((*_SIGNS, *words)), _place(rng, content)
    content[at : at + len(word)] = word


_CHANGES: tuple[Callable[[Chance, bytearray, Sequence[bytes]], None], ...] = (
    *(_flip, _set, _number, _cut),
    *(_repeat, _insert, _replace),
)
