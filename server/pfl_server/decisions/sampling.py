"""Draws the sites of a round and those that drop out: a pure function of (seed, round, candidates)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pfl_common.errors import RunFailed
from pfl_common.randomness.seeded_draws import choose, uniform, whole
from pfl_common.spec.participation import Participation
from pfl_common.spec.rules import MAJORITY, Quorum
from pfl_common.spec.run import ClientId


@dataclass(frozen=True)
class Draw:
    """A round's cohort in site order, and its members that train but do not report."""

    cohort: tuple[ClientId, ...]
    drops: frozenset[ClientId]

    def quorum(self, rule: Quorum) -> int:
        """The number of updates that must be counted: a share of those expected to report, and at least one. For a
        majority at least two, because the mean of one site is that site's own model.
        """
        expected = len(self.cohort) - len(self.drops)
        wanted = max(2, expected // 2 + 1) if rule == MAJORITY else max(1, math.ceil(rule * expected - 1e-9))
        return min(expected, wanted)


def draw(rule: Participation, *, seed: int, number: int, candidates: Iterable[ClientId]) -> Draw:
    """Draw a round's cohort: the same seed, round and candidates (in any order) give the same answer."""
    names = _in_order(tuple(candidates))
    cohort = _fixed(rule, names) if rule.fixed else _drawn(rule, seed, number, names)
    drops = frozenset(site for site in cohort if uniform(seed, "drop", number, site) < rule.drop)
    return Draw(tuple(cohort), drops)


@lru_cache(maxsize=4)
def _in_order(candidates: tuple[ClientId, ...]) -> tuple[ClientId, ...]:
    """Each once. Most rounds of a run have the same candidates."""
    return tuple(sorted(set(candidates)))


def _drawn(rule: Participation, seed: int, number: int, names: Sequence[ClientId]) -> list[ClientId]:
    # 0.29 * 100 is 28.999999999999996: the small term keeps floor from losing a site to rounding.
    low, high = (max(1, math.floor(ratio * len(names) + 1e-9)) for ratio in (rule.low, rule.high))
    size = low if low == high else whole(low, high, seed, "size", number)
    return choose(names, size, seed, "cohort", number)


def _fixed(rule: Participation, names: Sequence[ClientId]) -> list[ClientId]:
    named = frozenset(rule.fixed)
    cohort = [name for name in names if name in named]
    if not cohort:
        raise RunFailed(f"none of the sites of --participation {', '.join(rule.fixed)} is in this run")
    return cohort
