"""Who agrees on which entries matter: golden values, and formulas counted bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.learning import mask_overlaps as overlap

torch.set_num_threads(1)

FIRST, SECOND, THIRD = "11110000", "11101000", "00011110"
MASK = st.lists(st.integers(0, 1), min_size=70, max_size=70)


def pack_bits(bits: str) -> torch.Tensor:
    """Bits as bytes, by other means than the product's."""
    return torch.from_numpy(np.packbits([int(bit) for bit in bits], bitorder="little"))


@pytest.mark.golden("fedcac", item=4)
def test_golden_overlaps_thresholds_circles() -> None:
    """The first two share three of four; the threshold rises to their overlap; after round 10 they part."""
    table = overlap.overlaps([pack_bits(bits) for bits in (FIRST, SECOND, THIRD)])
    assert [[1, 0.75, 0.25], [0.75, 1, 0.25], [0.25, 0.25, 1]] == table.tolist()
    assert pytest.approx((0.416667, 0.75), abs=1e-5) == overlap.spread(table)
    thresholds = [overlap.threshold(table, number, 10) for number in (1, 5, 10)]
    assert pytest.approx([0.45, 0.583333, 0.75], abs=1e-5) == thresholds
    for number, expected in [
        (1, [[1], [0], []]),
        (5, [[1], [0], []]),
        (10, [[1], [0], []]),
        (11, [[], [], []]),
    ]:
        assert expected == overlap.circles(table, "time_varying", number=number, beta=10)


@given(st.lists(MASK, min_size=2, max_size=4), st.sampled_from(["row", "dice"]))
def test_overlaps_by_the_formula(rows: list[list[bool]], norm: overlap.Norm) -> None:
    """The formula, bit by bit, with padding in the last byte and word; 0 for an empty mask."""
    masks = [np.array(row, dtype=int) for row in rows]
    table = overlap.overlaps([pack_bits("".join(map(str, mask))) for mask in masks], norm)
    for i, own in enumerate(masks):
        for j, other in enumerate(masks):
            whole = 2 * own.sum() if norm == "row" else own.sum() + other.sum()
            expected = 1 - np.abs(own - other).sum() / whole if own.sum() else 0.0
            assert pytest.approx(expected, abs=1e-12) == float(table[i, j])


def test_one_mark_against_eight_is_far_below_nothing() -> None:
    """By row 1 - 7 / 2 = -2.5 for the site of one mark, 1 - 7 / 16 for the other; an empty mask is at 0, above it."""
    table = overlap.overlaps([pack_bits(bits) for bits in ("10000000", "11111111", "00000000")])
    assert [[1, -2.5, 0.5], [0.5625, 1, 0.5], [0, 0, 0]] == table.tolist()
    assert [[2], [0], [0]] == overlap.circles(table, "top1", number=1, beta=1)


@pytest.mark.golden("fedcac", item=4)
def test_the_paper_s_own_formula_would_choose_the_least_similar() -> None:
    """|M_i - M_j| / (2n) is 0.125 for the two that agree most and 0.375 for the others: the wrong way round."""
    first, second, third = (np.array([int(bit) for bit in bits]) for bits in (FIRST, SECOND, THIRD))
    printed = [np.abs(a - b).sum() / 16 for a, b in ((first, second), (first, third), (second, third))]
    assert [0.125, 0.375, 0.375] == printed
    table = overlap.overlaps([pack_bits(bits) for bits in (FIRST, SECOND, THIRD)])
    assert table[0, 1] > table[0, 2]


def test_two_sites_part_after_beta() -> None:
    """Mean and maximum of one pair are equal, so only the rule ends their circle."""
    table = overlap.overlaps([pack_bits(FIRST), pack_bits(SECOND)])
    assert [[1], [0]] == overlap.circles(table, "time_varying", number=4, beta=4)
    assert [[], []] == overlap.circles(table, "time_varying", number=5, beta=4)


def test_rounding_does_not_part_equals() -> None:
    """Overlaps a hair below the threshold are taken for equal to it."""
    table = torch.tensor([[1, 0.5, 0.5 - 1e-12], [0.5, 1, 0.2], [0.5 - 1e-12, 0.2, 1]]).double()
    table[0, 2] = table[2, 0] = 0.5 - 1e-12
    assert [[1, 2], [0], [0]] == overlap.circles(table, "time_varying", number=5, beta=5)


def test_beta_one_leaves_only_the_nearest_pair_in_round_one() -> None:
    """With beta = 1 the pairs of largest overlap collaborate once, then nobody does."""
    table = overlap.overlaps([pack_bits(bits) for bits in (FIRST, SECOND, THIRD)])
    assert [[1], [0], []] == overlap.circles(table, "time_varying", number=1, beta=1)
    assert [[], [], []] == overlap.circles(table, "time_varying", number=2, beta=1)


@pytest.mark.parametrize(
    ("collaboration", "expected"), [("none", [0, 0, 0]), ("top1", [1, 1, 1]), ("top5", [2, 2, 2])]
)
def test_fixed_circles_know_no_time(collaboration: overlap.Collaboration, expected: list[int]) -> None:
    """None, the nearest, or the five nearest (here all others), also after beta."""
    table = overlap.overlaps([pack_bits(bits) for bits in (FIRST, SECOND, THIRD)])
    rows = overlap.circles(table, collaboration, number=99, beta=1)
    assert expected == [len(row) for row in rows]
    assert all(place not in row for place, row in enumerate(rows))


def test_the_five_nearest_of_seven() -> None:
    """Seven equal masks: the first five others by place, for each site."""
    table = overlap.overlaps([pack_bits(FIRST)] * 7)
    rows = overlap.circles(table, "top5", number=1, beta=1)
    assert ([1, 2, 3, 4, 5], [0, 1, 2, 3, 4]) == (rows[0], rows[6])
