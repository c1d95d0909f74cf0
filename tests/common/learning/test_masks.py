"""Which entries matter, and who agrees on them: golden values, and formulas counted bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.learning import masks as overlap
from pfl_common.randomness import generators

torch.set_num_threads(1)

FIRST, SECOND, THIRD = "11110000", "11101000", "00011110"
MASK = st.lists(st.integers(0, 1), min_size=70, max_size=70)


def pack_bits(bits: str) -> torch.Tensor:
    """Bits as bytes, by other means than the product's."""
    return torch.from_numpy(np.packbits([int(bit) for bit in bits], bitorder="little"))


@pytest.mark.golden("fedcac", item=4)
def test_golden_sensitivity_and_mask() -> None:
    """Two entries tie for the second place, so three are critical."""
    moved, after = (
        torch.tensor([0.1, -0.2, 0.3, 0.0, 0.05]).double(),
        torch.tensor([1, 0.5, -0.1, 2, -4]).double(),
    )
    scores = overlap.sensitivity(after - moved, after)
    torch.testing.assert_close(scores, torch.tensor([0.1, 0.1, 0.03, 0, 0.2]).double(), atol=1e-5, rtol=0)
    tied = torch.tensor([0.1, 0.1, 0.03, 0.0, 0.2])
    assert [True, True, False, False, True] == overlap.most_sensitive(tied, 0.5).tolist()


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, []), (0.2, []), (0.25, [3]), (0.5, [2, 3]), (0.75, [1, 2, 3]), (1.0, [1, 2, 3])],
)
def test_too_little_movement_marks_what_moved(share: float, expected: list[int]) -> None:
    """With a threshold of next to nothing only entries above 1e-20 are critical."""
    scores = torch.tensor([[0.0, 1e-15], [1.0, 2.0]])
    assert expected == overlap.most_sensitive(scores, share).flatten().nonzero().flatten().tolist()


@pytest.mark.golden("fedcac", item=4)
def test_golden_degenerate_threshold() -> None:
    """Where nothing is above 1e-20 the threshold stays the second largest: 0011, not 1111. Of zeros all are marked."""
    scores = torch.tensor([1e-21, 2e-21, 3e-21, 4e-21])
    assert [False, False, True, True] == overlap.most_sensitive(scores, 0.5).tolist()
    assert [True] * 4 == overlap.most_sensitive(torch.zeros(4), 0.5).tolist()


def test_least_sensitive_and_drawn_mark_exactly_their_share() -> None:
    """Ties do not add to the least sensitive; chance ignores the scores."""
    scores = torch.tensor([0.0, 0.0, 0.0, 5.0, 1.0])
    assert [True, True, False, False, False] == overlap.least_sensitive(scores, 0.5).tolist()
    assert 2 == int(overlap.drawn(scores, 0.5, generators.generator(1)).sum())


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 40))
def test_packed_masks_come_back(bits: list[bool], cut: int) -> None:
    """Eight entries to a byte, in the order of names, and back; numpy packs alike."""
    mask = {"b": torch.tensor(bits[cut:], dtype=torch.bool), "a": torch.tensor(bits[:cut], dtype=torch.bool)}
    packed = overlap.pack(mask)
    assert np.packbits(bits, bitorder="little").tolist() == packed.tolist()
    assert {name: value.tolist() for name, value in mask.items()} == {
        name: value.tolist() for name, value in overlap.unpack(packed, mask).items()
    }


def test_density_and_jaccard() -> None:
    """Three of four are marked; two masks share one of three marks; empty masks share none."""
    assert 0.75 == overlap.density({"x": torch.tensor([True, True]), "y": torch.tensor([[True], [False]])})
    assert 1 / 3 == overlap.jaccard(pack_bits("110"), pack_bits("011"))
    assert 0.0 == overlap.jaccard(pack_bits("0"), pack_bits("0"))


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


def test_padding_counts_for_nothing() -> None:
    """Whatever a site puts behind its last entry; the mask it sent stays as it was."""
    sent = torch.tensor([255, 255], dtype=torch.uint8)
    assert [11, 16] == [overlap.count_marks(overlap.cut_padding(sent, entries)) for entries in (11, 16)]
    assert 16 == overlap.count_marks(sent)
