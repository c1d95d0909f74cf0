"""Which updates went too far, as a function of the set of them."""

from __future__ import annotations

from math import inf

import pytest

from pfl_server.decisions.outlying import FEWEST_BEFORE, ROUNDS, Outlying


def test_a_thousand_times_as_far_as_the_others() -> None:
    """One of three in the first round already; a hundred times is still taken."""
    outlying = Outlying(100)
    assert ("c",) == outlying.find({"a": 1.0, "b": 1.2, "c": 1000.0})
    assert () == outlying.find({"a": 1.0, "b": 1.2, "c": 119.0})


def test_honest_sites_of_different_size_pass() -> None:
    """A site with fifty times the data of the others goes far, and is one of many."""
    assert () == Outlying(100).find({"a": 0.2, "b": 0.3, "c": 0.25, "d": 14.0})


def test_two_sites_need_rounds_before() -> None:
    """Of two nobody can tell the odd one; what earlier rounds counted can."""
    outlying = Outlying(100)
    assert inf == outlying.limit({"a": 1.0, "b": 9e8})
    for _ in range(FEWEST_BEFORE // 2):
        outlying.remember({"a": 1.0, "b": 2.0})
    assert ("b",) == outlying.find({"a": 1.0, "b": 9e8})


def test_what_was_usual_while_it_learnt_stays_allowed() -> None:
    """A model that has learnt hardly moves: an honest stumble beside that is no attack."""
    outlying = Outlying(100, [{"a": 1.0, "b": 1.2}] * ROUNDS + [{"a": 1e-3, "b": 1e-3}] * 9)
    assert 100.0 <= outlying.limit({"a": 1e-3, "b": 1.4}) <= 120.0
    assert () == outlying.find({"a": 1e-3, "b": 1.4})
    assert ("b",) == outlying.find({"a": 1e-3, "b": 1e3})


def test_a_round_in_which_all_go_further() -> None:
    """The larger median counts: after a switch of phase, or a fall-back, nobody honest is left out."""
    outlying = Outlying(10, [{"a": 0.01, "b": 0.01, "c": 0.01}] * ROUNDS)
    assert () == outlying.find({"a": 5.0, "b": 6.0, "c": 7.0})
    assert ("c",) == outlying.find({"a": 5.0, "b": 6.0, "c": 61.0})


@pytest.mark.parametrize(
    "factor, changes", [(0, {"a": 0.0, "b": 1.0, "c": 1e9}), (5, {"a": 0.0, "b": 0.0, "c": 1.0})]
)
def test_nothing_to_compare_with(factor: float, changes: dict[str, float]) -> None:
    """It is switched off, or most have not moved at all."""
    assert () == Outlying(factor).find(changes)
