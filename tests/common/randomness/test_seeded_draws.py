"""Chance is a function of words: the same for every caller, different for every purpose."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.randomness import seeded_draws
from pfl_common.randomness.seeded_draws import choose, derive, uniform, whole

SITES = [f"site-{letter}" for letter in "abcdef"]


def test_a_number_is_the_same_on_every_machine() -> None:
    """A value that must never change: a change of it changes every run that was ever made."""
    # The first 8 bytes, less one bit, of SHA-256 over each word as length (4 bytes), type and text.
    assert 0x3E039FE001D6A71B == derive(7, "site-a", 3, "shuffle", 0)


def test_words_are_kept_apart() -> None:
    """Neither the joints nor the type of a word get lost."""
    draws = [derive("a", "bc"), derive("ab", "c"), derive("abc"), derive("abc", ""), derive(1), derive("1")]

    assert len(draws) == len(set(draws))


@given(st.lists(st.integers() | st.text()))
def test_a_number_fits_a_seed(words: list[int | str]) -> None:
    """63 bits: torch takes it as it is."""
    assert 0 <= derive(*words) < 1 << 63
    assert 0 <= uniform(*words) < 1


def test_numbers_are_spread_evenly() -> None:
    """10000 draws in ten bins of 1000 ± 30: 150 is five deviations away."""
    bins = Counter(int(10 * uniform("bins", number)) for number in range(10_000))

    assert list(range(10)) == sorted(bins)
    assert all(abs(count - 1000) < 150 for count in bins.values())


def test_whole_numbers_reach_both_ends() -> None:
    """From 3 to 6, ends included, each about as often."""
    counts = Counter(whole(3, 6, "ends", number) for number in range(4000))

    assert [3, 4, 5, 6] == sorted(counts)
    assert all(abs(count - 1000) < 150 for count in counts.values())


def test_a_range_of_one_number() -> None:
    """There is nothing to draw."""
    assert 4 == whole(4, 4, "x")


@given(st.permutations(SITES), st.integers(0, 6), st.integers(0, 1000))
def test_the_order_of_names_does_not_matter(names: list[str], count: int, seed: int) -> None:
    """Sites register in any order, and some twice."""
    chosen = choose(SITES, count, seed)

    assert chosen == choose(names, count, seed) == choose(names + names[:3], count, seed)
    assert (sorted(chosen), count) == (chosen, len(set(chosen)))


def test_a_larger_draw_contains_the_smaller() -> None:
    """Of the same words, so that one more site does not exchange the others."""
    assert set(choose(SITES, 2, 9)) < set(choose(SITES, 3, 9))


@pytest.mark.parametrize("count", [6, 7, 100])
def test_more_than_there_are_is_all(count: int) -> None:
    """Nobody is drawn twice."""
    assert SITES == choose(SITES, count, 1)


def test_every_pair_is_drawn_about_as_often() -> None:
    """15 pairs, 3000 rounds: 200 each ± 14, and 70 is five deviations away."""
    drawn = Counter(tuple(choose(SITES, 2, 5, round, "cohort")) for round in range(3000))

    assert set(combinations(SITES, 2)) == set(drawn)
    assert all(abs(count - 200) < 70 for count in drawn.values())


def test_rounds_draw_independently() -> None:
    """A site drawn in one round is drawn in the next as often as any other: 1500 ± 27 of 3000."""
    both = sum(
        SITES[0] in choose(SITES, 3, 5, round) and SITES[0] in choose(SITES, 3, 5, round + 1)
        for round in range(3000)
    )

    assert abs(both - 750) < 150


def test_a_draw_is_the_same_on_every_machine() -> None:
    """Those with the smallest numbers of words and name: so are the cohorts of all runs that were ever made."""
    names = [f"site-{number:03d}" for number in range(40)]
    by_number = sorted(names, key=lambda name: derive(3, "cohort", 4, name))

    assert ["site-015", "site-016", "site-025", "site-039"] == choose(names, 4, 3, "cohort", 4)
    assert [sorted(by_number[:count]) for count in range(42)] == [
        choose(names, count, 3, "cohort", 4) for count in range(42)
    ]


def test_names_with_one_number_are_told_apart_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two digests can begin alike; their rest, and the bit that a number lacks, decides nothing."""
    ends = {"a": b"\x00", "b": b"\x01", "c": b"\x00", "d": b"\x02"}

    class Digest:
        def __init__(self, name: str = "") -> None:
            self.name = name

        def copy(self) -> Digest:
            return Digest()

        def update(self, spelled: bytes) -> None:
            self.name = spelled[-1:].decode()

        def digest(self) -> bytes:
            rest = bytes([255 - ord(self.name)]) * 24
            return bytes(7) + ends[self.name] + rest

    monkeypatch.setattr(seeded_draws, "_digest", lambda words: Digest())
    assert [["a"], ["a", "b"], ["a", "b", "c"]] == [choose("dcba", count, "x") for count in (1, 2, 3)]
