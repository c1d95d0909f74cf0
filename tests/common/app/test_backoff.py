"""Pauses between attempts."""

from __future__ import annotations

from itertools import pairwise

from pfl_common.app.backoff import BackOff


def test_each_pause_is_twice_the_one_before() -> None:
    """Up to the longest, and then for ever that."""
    pauses = BackOff(first=0.5, longest=3.0)
    assert [0.5, 1.0, 2.0] == [pauses.take() for _ in range(3)]
    assert pauses.at_longest
    assert [3.0, 3.0] == [pauses.take() for _ in range(2)]
    for _ in range(5000):
        pauses.take()
    assert 3.0 == pauses.take()


def test_a_first_pause_longer_than_the_longest_is_cut() -> None:
    """A run's lease may be shorter than any pause."""
    assert 0.2 == BackOff(first=0.5, longest=0.2).take()


def test_after_success_it_begins_again() -> None:
    """What went wrong once is not held against the next attempt."""
    pauses = BackOff(first=1.0, longest=8.0)
    assert [1.0, 2.0] == [pauses.take(), pauses.take()]
    pauses.begin_again()
    assert not pauses.at_longest
    assert 1.0 == pauses.take()


def test_varied_pauses_lie_between_a_half_and_the_whole() -> None:
    """And are not all the same."""
    pauses = BackOff(first=4.0, longest=4.0, varied=True)
    drawn = [pauses.take() for _ in range(200)]
    assert all(2.0 <= pause <= 4.0 for pause in drawn)
    assert any(a != b for a, b in pairwise(drawn))
