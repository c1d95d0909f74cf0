"""A round decides from events alone: tables of what came and what follows, and laws for any interleaving."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfl_server.decisions.round import (
    Abandon,
    Arrived,
    Close,
    Event,
    Fold,
    Lost,
    Order,
    Refuse,
    Round,
    TimeUp,
)

A, B, C = Arrived("a", "1"), Arrived("b", "2"), Arrived("c", "3")
FOLD_A, FOLD_B, FOLD_C = Fold("a", "1"), Fold("b", "2"), Fold("c", "3")

TABLE: dict[str, tuple[int, list[tuple[Event, list[Order]]]]] = {
    "in site order": (3, [(A, [FOLD_A]), (B, [FOLD_B]), (C, [FOLD_C, Close(("a", "b", "c"))])]),
    "in reverse": (3, [(C, []), (B, []), (A, [FOLD_A, FOLD_B, FOLD_C, Close(("a", "b", "c"))])]),
    "the first is last but one": (
        1,
        [(B, []), (A, [FOLD_A, FOLD_B]), (C, [FOLD_C, Close(("a", "b", "c"))])],
    ),
    "a loss lets those behind it through": (
        1,
        [(B, []), (Lost("a", "left"), [FOLD_B]), (C, [FOLD_C, Close(("b", "c"))])],
    ),
    "the same update again is no second vote": (
        1,
        [(A, [FOLD_A]), (A, []), (B, [FOLD_B]), (C, [FOLD_C, Close(("a", "b", "c"))]), (C, [])],
    ),
    "another update of the same site": (
        1,
        [(A, [FOLD_A]), (Arrived("a", "9"), [Refuse("a", "twice")]), (TimeUp(), [Close(("a",))])],
    ),
    "lost, then arrived": (
        1,
        [
            (Lost("b", "lease"), []),
            (B, [Refuse("b", "late")]),
            (A, [FOLD_A]),
            (C, [FOLD_C, Close(("a", "c"))]),
        ],
    ),
    "arrived, then lost": (1, [(A, [FOLD_A]), (Lost("a", "left"), []), (TimeUp(), [Close(("a",))])]),
    "a stranger": (1, [(Arrived("z", "1"), [Refuse("z", "not_in_cohort")]), (Lost("z", "left"), [])]),
    "the deadline closes with what there is": (
        2,
        [(A, [FOLD_A]), (C, []), (TimeUp(), [FOLD_C, Close(("a", "c"))])],
    ),
    "the deadline abandons below the quorum": (
        2,
        [
            (B, []),
            (TimeUp(), [FOLD_B, Abandon("1 of 2 needed updates; lost: a (deadline), c (deadline)")]),
        ],
    ),
    "nobody was expected": (
        0,
        [(Lost(s, "dropped"), []) for s in "ab"] + [(Lost("c", "dropped"), [Close(())])],
    ),
    "after the end": (
        1,
        [
            (TimeUp(), [Abandon("0 of 1 needed updates; lost: a (deadline), b (deadline), c (deadline)")]),
            (A, [Refuse("a", "late")]),
            (TimeUp(), []),
            (Lost("a", "left"), []),
        ],
    ),
}


@pytest.mark.parametrize("quorum, steps", TABLE.values(), ids=TABLE.keys())
def test_orders_follow_from_events(quorum: int, steps: list[tuple[Event, list[Order]]]) -> None:
    """Each event gives exactly these orders."""
    round_ = Round("cab", quorum=quorum)
    assert [orders for _, orders in steps] == [round_.handle(event) for event, _ in steps]


def test_a_name_given_twice_is_one_site() -> None:
    """A cohort is a set: nobody is counted twice because a list says so."""
    round_ = Round(["a", "a"], quorum=1)
    assert [FOLD_A, Close(("a",))] == round_.handle(A)


def test_it_knows_whom_it_awaits() -> None:
    """What the status page shows follows the events."""
    round_ = Round("abc", quorum=1)
    round_.handle(B)
    round_.handle(Lost("c", "disk_full"))
    assert (("a",), ("b",), {"c": "disk_full"}) == (round_.awaited, round_.counted, round_.losses)


sites = st.sampled_from("abcdx")
events = st.lists(
    st.one_of(
        st.builds(Arrived, sites, st.sampled_from(["1", "2"])),
        st.builds(Lost, sites, st.sampled_from(["lease", "left"])),
        st.just(TimeUp()),
    ),
    max_size=25,
)


@given(cohort=st.sets(st.sampled_from("abcd"), min_size=1), quorum=st.integers(0, 4), story=events)
def test_whatever_comes_in_whatever_order(cohort: set[str], quorum: int, story: list[Event]) -> None:
    """Folds rise in site order and are the counted set; one verdict, and after it only refusals."""
    round_ = Round(sorted(cohort), quorum=quorum)
    orders = [order for event in [*story, TimeUp()] for order in round_.handle(event)]
    folds = [order for order in orders if isinstance(order, Fold)]
    verdicts = [place for place, order in enumerate(orders) if isinstance(order, Close | Abandon)]
    assert 1 == len(verdicts)
    assert all(isinstance(order, Refuse) for order in orders[verdicts[0] + 1 :])
    assert sorted({fold.client for fold in folds}) == [fold.client for fold in folds]
    assert tuple(fold.client for fold in folds) == round_.counted
    assert cohort == set(round_.counted) | round_.losses.keys()
    assert not set(round_.counted) & round_.losses.keys()
    verdict = orders[verdicts[0]]
    assert (len(folds) >= quorum) == isinstance(verdict, Close)
    first = {event.client: event for event in reversed(story) if not isinstance(event, TimeUp)}
    assert all(first[fold.client] == Arrived(fold.client, fold.id) for fold in folds)
