"""A validation part for a site that has none: stratified, always the same samples, nothing lost."""

from __future__ import annotations

import pytest
import torch

from pfl_client.data.hold_out import LEAST, hold_out
from pfl_common.learning.method import Samples


def make_parts(labels: list[int], *, validation: int = 0) -> dict[str, Samples]:
    """Samples whose number is their place."""
    y = torch.tensor(labels)
    x = torch.arange(len(labels), dtype=torch.float32).unsqueeze(1)
    return {
        "train": Samples(x, y),
        "validation": Samples(x[:validation], y[:validation]),
        "test": Samples(x[:0], y[:0]),
    }


def divide(
    labels: list[int], share: float, *, site: str = "a", spare_small: bool = False
) -> tuple[list[float], list[float]]:
    """Which samples stay, and which are held back."""
    found = hold_out(make_parts(labels), share, site=site, classes=("x", "y"), spare_small=spare_small)
    return found["train"].x.flatten().tolist(), found["validation"].x.flatten().tolist()


def test_every_sample_is_on_one_side_and_each_class_gives_its_share() -> None:
    """A class of 20 gives 5 of a quarter, one of 8 gives 2."""
    labels = [0] * 20 + [1] * 8
    train, held = divide(labels, 0.25)
    assert sorted([*train, *held]) == list(range(28))
    assert [5, 2] == [sum(labels[int(place)] == number for place in held) for number in (0, 1)]


@pytest.mark.parametrize(("count", "held"), [(1, 0), (2, 1), (3, 1)])
def test_a_small_class_keeps_a_sample_on_either_side(count: int, held: int) -> None:
    """One that has a single sample keeps it for training: or nobody would learn it."""
    assert held == len(divide([0] * count, 0.2)[1])


@pytest.mark.parametrize(("rare", "held"), [(1, 0), (3, 0), (4, 1), (20, 3)])
def test_a_class_too_small_for_its_share_keeps_all_where_the_small_are_spared(rare: int, held: int) -> None:
    """The common class gives its 15 of 100, the rare one its share rounded."""
    labels = [0] * 100 + [1] * rare
    _, back = divide(labels, 0.15, spare_small=True)
    assert (15, held) == tuple(sum(labels[int(place)] == number for place in back) for number in (0, 1))


@pytest.mark.parametrize(("samples", "held"), [(60, 0), (LEAST * 5 - 5, 0), (LEAST * 5, LEAST)])
def test_a_small_site_keeps_all_where_the_small_are_spared(samples: int, held: int) -> None:
    """A part of fewer than ten says too little of a model."""
    share = 0.2 if samples < 60 else 0.15
    assert (samples - held, held) == tuple(map(len, divide([0] * samples, share, spare_small=True)))


def test_the_same_samples_whatever_runs_and_others_at_another_site() -> None:
    """They follow from the site, the class and the place alone."""
    assert divide([0] * 40, 0.25) == divide([0] * 40, 0.25)
    assert divide([0] * 40, 0.25) != divide([0] * 40, 0.25, site="b")


@pytest.mark.parametrize(("share", "validation"), [(0.0, 0), (0.25, 2)])
def test_nothing_is_held_back_unasked_or_beside_a_validation_part(share: float, validation: int) -> None:
    """The site's own part is as good."""
    parts = make_parts([0] * 8, validation=validation)
    assert parts == hold_out(parts, share, site="a", classes=("x",))


def divide_groups(labels: list[int], groups: list[str], share: float = 0.25) -> tuple[list[int], list[int]]:
    """The places of the samples that stay, and of those held back."""
    parts = make_parts(labels)
    found = hold_out(parts, share, site="a", classes=("x", "y"), groups=groups)
    train, held = (found[part].x.flatten().int().tolist() for part in ("train", "validation"))
    return train, held


def test_a_group_is_on_one_side() -> None:
    """Ten patients of each class with four pictures, some with both: nobody is in both parts, and the shares hold."""
    labels = [0] * 40 + [1] * 40
    groups = [f"p{place // 4}" for place in range(40)] + [f"p{8 + place // 4}" for place in range(40)]
    train, held = divide_groups(labels, groups)
    assert sorted([*train, *held]) == list(range(80))
    assert not {groups[place] for place in train} & {groups[place] for place in held}
    for number in (0, 1):
        assert sum(labels[place] == number for place in held) in range(6, 15)


def test_groups_follow_from_their_names_alone() -> None:
    """Samples in another order are divided alike."""
    labels, groups = [0] * 12 + [1] * 12, [f"p{place // 3}" for place in range(24)]
    _, held = divide_groups(labels, groups)
    _, turned = divide_groups(labels[::-1], groups[::-1])
    assert {groups[place] for place in held} == {groups[::-1][place] for place in turned}


@pytest.mark.parametrize("groups", [["p"] * 6, ["p"] * 3 + ["q"] * 3])
def test_a_class_of_one_group_stays_in_training(groups: list[str]) -> None:
    """Held back, nobody would learn it."""
    labels = [0, 0, 0, 1, 1, 1]
    assert ([0, 1, 2, 3, 4, 5], []) == divide_groups(labels, groups)


def test_a_small_site_with_groups_keeps_all_where_the_small_are_spared() -> None:
    """The least counts whole groups too; with enough samples patients are held back whole."""
    for patients, held in ((10, False), (40, True)):
        labels = [number % 2 for number in range(4 * patients)]
        groups = [f"p{place // 4}" for place in range(4 * patients)]
        found = hold_out(
            make_parts(labels), 0.15, site="a", classes=("x", "y"), groups=groups, spare_small=True
        )
        places = found["validation"].x.flatten().int().tolist()
        assert held == bool(places)
        assert all(places.count(place) == 1 for place in places)
        taken = {groups[place] for place in places}
        assert len(places) == 4 * len(taken)
        assert not places or len(places) >= LEAST
