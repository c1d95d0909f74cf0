"""Cohorts: how large, who, who drops out, and how many must report."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from pfl_common.errors import RunFailed
from pfl_common.spec.participation import Participation
from pfl_common.spec.rules import MAJORITY, Quorum
from pfl_server.decisions.sampling import Draw, draw


def names(count: int) -> list[str]:
    return [f"site-{n:03d}" for n in range(count)]


def sizes(rule: Participation, count: int, rounds: int) -> Counter[int]:
    return Counter(
        len(draw(rule, seed=1, number=n, candidates=names(count)).cohort) for n in range(1, rounds + 1)
    )


@pytest.mark.parametrize(
    "ratio, count, expected",
    [(0.29, 100, 29), (0.57, 100, 57), (0.1, 20, 2), (0.5, 3, 1), (0.1, 5, 1), (1.0, 7, 7), (0.999, 10, 9)],
)
def test_a_ratio_is_rounded_down(ratio: float, count: int, expected: int) -> None:
    """floor(ratio x N), without losing a site to binary fractions, and never nobody."""
    assert {expected: 3} == sizes(Participation(ratio, ratio), count, 3)


def test_a_range_draws_every_size_alike() -> None:
    """Sizes are uniform over floor(low x N) to N: chi-square over 16 sizes stays below its 99.9 % point."""
    drawn, rounds = sizes(Participation(0.25, 1.0), 20, 3200), 3200
    assert set(range(5, 21)) == set(drawn)
    expected = rounds / 16
    assert 37.7 > sum((drawn[size] - expected) ** 2 / expected for size in range(5, 21))


def test_every_site_is_drawn_alike() -> None:
    """3 of 12 in 2000 rounds: chi-square with 11 degrees of freedom stays below its 99.9 % point."""
    rule, rounds = Participation(0.25, 0.25), 2000
    seen = Counter(
        s for n in range(rounds) for s in draw(rule, seed=9, number=n, candidates=names(12)).cohort
    )
    expected = rounds * 3 / 12
    assert 31.3 > sum((seen[site] - expected) ** 2 / expected for site in names(12))


def test_the_order_of_candidates_does_not_matter() -> None:
    """The same set of names gives the same draw, in site order."""
    rule = Participation(0.5, 0.5, drop=0.3)
    forward = draw(rule, seed=3, number=4, candidates=names(30))
    assert forward == draw(rule, seed=3, number=4, candidates=reversed([*names(30), *names(30)]))
    assert sorted(forward.cohort) == list(forward.cohort)


def test_seed_and_round_each_change_the_draw() -> None:
    """Another seed or another round is another draw."""
    rule, candidates = Participation(0.3, 0.3), names(40)
    draws = {draw(rule, seed=s, number=n, candidates=candidates) for s in (0, 1) for n in (1, 2)}
    assert 4 == len(draws)


def test_drops_are_part_of_the_cohort_and_come_at_their_rate() -> None:
    """With a chance of 0.3, 3000 draws hold 900 drop-outs but for five standard deviations."""
    rule = Participation(0.5, 0.5, drop=0.3)
    draws = [draw(rule, seed=2, number=n, candidates=names(20)) for n in range(300)]
    assert all(d.drops <= set(d.cohort) for d in draws)
    assert 5 * math.sqrt(3000 * 0.3 * 0.7) > abs(900 - sum(len(d.drops) for d in draws))


def test_the_extremes_of_dropping() -> None:
    """Chance 0 drops nobody, chance 1 everybody."""
    nobody, everybody = (
        draw(Participation(drop=chance), seed=1, number=1, candidates="abc") for chance in (0.0, 1.0)
    )
    assert (frozenset(), frozenset("abc")) == (nobody.drops, everybody.drops)


@pytest.mark.parametrize(
    "cohort, drops, share, expected",
    [
        (10, 0, 0.5, 5),
        (10, 0, 0.29, 3),
        (10, 0, 0.3, 3),
        (10, 4, 0.5, 3),
        (3, 0, 1.0, 3),
        (3, 3, 1.0, 0),
        (5, 0, 0.01, 1),
        (1, 0, MAJORITY, 1),
        (2, 0, MAJORITY, 2),
        (3, 0, MAJORITY, 2),
        (4, 0, MAJORITY, 3),
        (5, 0, MAJORITY, 3),
        (5, 1, MAJORITY, 3),
        (5, 3, MAJORITY, 2),
        (5, 4, MAJORITY, 1),
        (5, 5, MAJORITY, 0),
        (100, 0, MAJORITY, 51),
    ],
)
def test_the_quorum_counts_who_is_expected(cohort: int, drops: int, share: Quorum, expected: int) -> None:
    """A share of those who shall report, rounded up, at least one, none if all were drawn to drop out; a majority is
    more than half, and two where two are expected.
    """
    assert expected == Draw(tuple(names(cohort)), frozenset(names(drops))).quorum(share)


def test_a_fixed_list_takes_whoever_is_there() -> None:
    """Named sites take part in every round; a name that is not a candidate is left out."""
    assert ("a", "c") == draw(Participation(fixed=("c", "x", "a")), seed=1, number=7, candidates="abc").cohort


def test_a_fixed_list_of_strangers_ends_the_run() -> None:
    """Nobody of the list is in the run: an error, not a round without sites."""
    with pytest.raises(RunFailed, match="--participation x, y"):
        draw(Participation(fixed=("x", "y")), seed=1, number=1, candidates="abc")
