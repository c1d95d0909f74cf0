"""Partitions: cases small enough to check by hand, and what must hold for every partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pfl_common.errors import SettingError
from pfl_deploy.datasets.labelled import Labelled, Source
from pfl_deploy.datasets.partitions import (
    Draws,
    class_counts,
    fixed_dirichlet,
    hold_out,
    iid,
    least_samples,
    pathological,
    practical_dirichlet,
    take_some,
    two_classes,
    with_validation,
)

SEEDS = st.integers(0, 2**32)


def labels_of(counts, order_seed=0):
    """Labels with so many examples of each class, mixed."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(order_seed).permutation(labels)


def assert_equal_parts(expected, actual):
    """Two lists of index lists are the same."""
    assert [part.tolist() for part in expected] == [part.tolist() for part in actual]


@pytest.mark.parametrize(
    ("total", "clients", "expected"), [(70_000, 20, 40), (60_000, 500, 40), (1_000, 20, 25), (100, 60, 0)]
)
def test_least_samples_follow_the_formula(total, clients, expected):
    """floor(min(10/0.25, n/2N)): 40 unless the data are too few for so many sites."""
    assert expected == least_samples(total, clients)


def test_pathological_gives_groups_of_sites_the_same_classes():
    """Four classes, four sites, two a site: ceil(4/4 * 2) = 2 takers, so 0 and 1 share classes 0 and 1."""
    labels = labels_of([40, 40, 40, 40])
    parts = pathological(labels, clients=4, per_client=2, seed=3)
    assert [{0, 1}, {0, 1}, {2, 3}, {2, 3}] == [set(labels[part]) for part in parts]


def test_pathological_cuts_a_class_in_data_set_order():
    """Of the sites that share a class the first gets its first examples."""
    labels = labels_of([40, 40])
    first, second = pathological(labels, clients=2, per_client=2, seed=5)
    for label in (0, 1):
        mine, theirs = (part[labels[part] == label] for part in (first, second))
        assert mine.max() < theirs.min()
        assert np.flatnonzero(labels == label).tolist() == [*mine.tolist(), *theirs.tolist()]


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_pathological_draws_every_size_but_the_last_from_the_published_range(seed):
    """One class of 400 for 4 sites: L = 40, three sizes lie in [max(10, 40), 100) and the rest goes last."""
    sizes = [len(part) for part in pathological(np.zeros(400, int), clients=4, per_client=1, seed=seed)]
    assert 400 == sum(sizes)
    assert all(40 <= size <= 99 for size in sizes[:-1]), sizes
    assert sizes[-1] > 100


def test_pathological_refuses_sites_that_cannot_hold_every_class():
    """Two sites of two classes cannot hold ten classes: said, instead of losing six classes."""
    with pytest.raises(SettingError, match="without a site"):
        pathological(labels_of([10] * 10), clients=2, per_client=2, seed=0)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, clients=st.integers(1, 8), beta=st.sampled_from([0.3, 1.0, 10.0]))
def test_practical_dirichlet_gives_every_example_to_one_site(seed, clients, beta):
    """Nothing lost, nothing twice, and no site below L."""
    labels = labels_of([90, 60, 50])
    parts = practical_dirichlet(labels, clients=clients, beta=beta, seed=seed)
    assert list(range(200)) == sorted(np.concatenate(parts).tolist())
    assert min(len(part) for part in parts) >= least_samples(200, clients)


def test_practical_dirichlet_stops_giving_to_a_site_that_has_its_share():
    """A site that holds n/N = 165 after the first class gets nothing of the second."""
    labels = np.repeat([0, 1], [300, 30])
    later = []
    for seed in range(40):
        for part in practical_dirichlet(labels, clients=2, beta=1.0, seed=seed):
            if np.sum(labels[part] == 0) >= 165:
                later.append(int(np.sum(labels[part] == 1)))
    assert len(later) > 20
    assert max(later) <= 1  # where the cut falls, floor may leave one example, never a share


def test_practical_dirichlet_becomes_even_when_beta_is_large():
    """A very large beta gives each site nearly the same number of each class."""
    labels = labels_of([400, 400])
    for part in practical_dirichlet(labels, clients=4, beta=1e6, seed=1):
        assert np.bincount(labels[part]).tolist() == pytest.approx([100, 100], abs=3)


def test_practical_dirichlet_gives_up_with_advice():
    """A beta so small that some site stays empty ends in an error that names the way out."""
    with pytest.raises(SettingError, match="larger beta"):
        practical_dirichlet(labels_of([200, 200]), clients=10, beta=1e-4, seed=0, attempts=20)


@pytest.mark.parametrize(
    ("shares", "size", "expected"),
    [
        ([0.25, 0.25, 0.5], 10, [3, 3, 4]),  # 2.5 rounds up, twice
        ([0.0, 0.0, 1.0], 7, [0, 0, 7]),
        ([0.55, 0.45, 0.0], 10, [6, 4, 0]),  # 4.5 would round to 5, only 4 are missing
        ([0.24, 0.24, 0.52], 10, [2, 2, 6]),
        ([1.0], 5, [5]),
    ],
)
def test_class_counts_round_half_up_and_give_the_rest_to_the_last(shares, size, expected):
    """Worked by hand from the rule."""
    assert expected == class_counts(np.array(shares), size).tolist()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, alpha=st.sampled_from([0.01, 0.1, 1.0, 100.0]))
def test_fixed_dirichlet_has_exact_sizes_and_equal_shares(seed, alpha):
    """Every site has its 50 and 20 examples, training and test counts come from one draw of shares."""
    train, test = labels_of([100, 100, 100]), labels_of([40, 40, 40])
    both = np.concatenate([train, test])
    for share in fixed_dirichlet((train, test), clients=3, alpha=alpha, seed=seed, sizes=Draws(50, 20)):
        assert (50, 20) == (len(share.train), len(share.test))
        assert share.train.max() < 300 <= share.test.min()
        assert 50 == len(set(share.train.tolist()))
        of_train, of_test = (np.bincount(both[part], minlength=3) for part in (share.train, share.test))
        assert np.abs(of_train / 50 - of_test / 20).max() <= 0.08


def test_fixed_dirichlet_draws_with_replacement_only_from_a_class_too_small():
    """30 of a class that has 5: each of them is there, repeated."""
    labels = np.zeros(5, int)
    (share,) = fixed_dirichlet((labels, np.zeros(50, int)), clients=1, alpha=1.0, seed=0, sizes=Draws(30, 20))
    assert 30 == len(share.train)
    assert 20 == len(set(share.test.tolist()))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_two_classes_gives_half_of_each_of_the_same_two(seed):
    """Training and test examples come from the same two classes, half from each; an odd size loses one."""
    train, test = labels_of([80] * 5), labels_of([30] * 5)
    both = np.concatenate([train, test])
    for share in two_classes((train, test), clients=4, seed=seed, sizes=Draws(21, 10)):
        of_train, of_test = (np.bincount(both[part], minlength=5) for part in (share.train, share.test))
        assert [0, 0, 0, 10, 10] == sorted(of_train.tolist())
        assert (of_train // 2).tolist() == of_test.tolist()
        assert share.train.max() < 400 <= share.test.min()


def test_drawn_sites_do_not_change_when_more_join():
    """A site's examples depend on the seed and its number, not on how many sites there are."""
    labels = (labels_of([80] * 5), labels_of([30] * 5))
    for draw in (
        lambda clients: two_classes(labels, clients=clients, seed=1, sizes=Draws(20, 10)),
        lambda clients: fixed_dirichlet(labels, clients=clients, alpha=0.5, seed=1, sizes=Draws(20, 10)),
    ):
        few, many = draw(2), draw(6)
        assert_equal_parts([share.train for share in few], [share.train for share in many[:2]])
        assert_equal_parts([share.test for share in few], [share.test for share in many[:2]])


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, clients=st.integers(1, 20), total=st.integers(20, 60))
def test_iid_shares_out_everything_evenly(seed, clients, total):
    """Every example at one site, sizes differing by one at most."""
    parts = iid(np.zeros(total, int), clients=clients, seed=seed)
    assert list(range(total)) == sorted(np.concatenate(parts).tolist())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, sizes=st.lists(st.integers(2, 40), min_size=1, max_size=5))
def test_hold_out_keeps_three_quarters_for_training(seed, sizes):
    """floor(0.75 n) examples to train, the rest to test, none lost, at least one on either side."""
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    for part, share in zip(parts, hold_out(parts, seed=seed), strict=True):
        assert max(1, len(part) * 3 // 4) == len(share.train)
        assert part.tolist() == sorted([*share.train.tolist(), *share.test.tolist()])


def test_hold_out_refuses_a_site_of_one():
    """One example cannot be on both sides."""
    with pytest.raises(SettingError, match="site 1 has 1 examples"):
        hold_out([np.arange(4), np.array([4])], seed=0)


def test_validation_comes_out_of_the_training_examples_alone():
    """The test part stays; a sample drawn twice does not end up on both sides."""
    (share,) = hold_out([np.arange(80)], seed=0)
    doubled = type(share)(np.concatenate([share.train, share.train[:30]]), share.test)
    (cut,) = with_validation([doubled], fraction=0.2, seed=4)
    assert share.test.tolist() == cut.test.tolist()
    assert 12 == len(set(cut.validation.tolist()))
    assert not set(cut.validation.tolist()) & set(cut.train.tolist())
    assert len(doubled.train) == len(cut.train) + len(cut.validation)


@pytest.mark.parametrize(
    "cut",
    [
        lambda labels, seed: iid(labels, clients=4, seed=seed),
        lambda labels, seed: pathological(labels, clients=4, per_client=2, seed=seed),
        lambda labels, seed: practical_dirichlet(labels, clients=4, beta=1.0, seed=seed),
        lambda labels, seed: [
            s.train for s in fixed_dirichlet((labels, labels), clients=4, alpha=1, seed=seed)
        ],
        lambda labels, seed: [s.train for s in two_classes((labels, labels), clients=4, seed=seed)],
        lambda labels, seed: [s.test for s in hold_out([np.arange(len(labels))], seed=seed)],
    ],
    ids=["iid", "pathological", "practical", "fixed", "two_classes", "hold_out"],
)
def test_the_seed_decides_and_nothing_else(cut):
    """Equal seeds give equal partitions, another seed another one."""
    labels = labels_of([150] * 4)
    assert_equal_parts(cut(labels, 7), cut(labels, 7))
    assert [part.tolist() for part in cut(labels, 7)] != [part.tolist() for part in cut(labels, 8)]


@pytest.mark.parametrize(("clients", "beta"), [(0, 1.0), (999, 1.0), (2, 0.0), (2, float("nan"))])
def test_settings_that_make_no_sense_are_errors(clients, beta):
    """No site, more sites than examples, a beta that is not above 0."""
    with pytest.raises(SettingError, match="expected"):
        practical_dirichlet(labels_of([20, 20]), clients=clients, beta=beta, seed=0)


def test_some_of_a_data_set_keep_the_shares_of_classes_and_parts():
    """100 of 1,000 examples: a tenth of each class in each part, drawn by the seed alone, in the data set's order."""
    train, test = labels_of((400, 200, 200)), labels_of((100, 50, 50), order_seed=1)
    source = Source("made up", "abc", Labelled(np.arange(800), train), Labelled(np.arange(200), test), "none")
    some = take_some(source, 100, seed=4)
    assert [40, 20, 20] == np.bincount(some.train.y).tolist()
    assert [10, 5, 5] == np.bincount(some.test.y).tolist()
    assert (np.diff(some.train.x) > 0).all()
    assert (train[some.train.x] == some.train.y).all()
    assert some.train.x.tolist() == take_some(source, 100, seed=4).train.x.tolist()
    assert some.train.x.tolist() != take_some(source, 100, seed=5).train.x.tolist()


@pytest.mark.parametrize("images", [-1, 0, 1_001])
def test_more_than_there_are_cannot_be_taken(images):
    """The number that can be had is named."""
    source = Source(
        "made up",
        "a",
        Labelled(np.arange(800), np.zeros(800, int)),
        Labelled(np.arange(200), np.zeros(200, int)),
        "none",
    )
    with pytest.raises(SettingError) as caught:
        take_some(source, images, seed=0)
    assert "1 to 1000" in caught.value.expected
