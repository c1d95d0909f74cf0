"""Which entries matter, and who agrees on them: golden values, and formulas counted bit by bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfl_common.learning import masks
from pfl_common.randomness import generators

torch.set_num_threads(1)


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
    scores = masks.sensitivity(after - moved, after)
    torch.testing.assert_close(scores, torch.tensor([0.1, 0.1, 0.03, 0, 0.2]).double(), atol=1e-5, rtol=0)
    tied = torch.tensor([0.1, 0.1, 0.03, 0.0, 0.2])
    assert [True, True, False, False, True] == masks.most_sensitive(tied, 0.5).tolist()


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, []), (0.2, []), (0.25, [3]), (0.5, [2, 3]), (0.75, [1, 2, 3]), (1.0, [1, 2, 3])],
)
def test_too_little_movement_marks_what_moved(share: float, expected: list[int]) -> None:
    """With a threshold of next to nothing only entries above 1e-20 are critical."""
    scores = torch.tensor([[0.0, 1e-15], [1.0, 2.0]])
    assert expected == masks.most_sensitive(scores, share).flatten().nonzero().flatten().tolist()


@pytest.mark.golden("fedcac", item=4)
def test_golden_degenerate_threshold() -> None:
    """Where nothing is above 1e-20 the threshold stays the second largest: 0011, not 1111. Of zeros all are marked."""
    scores = torch.tensor([1e-21, 2e-21, 3e-21, 4e-21])
    assert [False, False, True, True] == masks.most_sensitive(scores, 0.5).tolist()
    assert [True] * 4 == masks.most_sensitive(torch.zeros(4), 0.5).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@given(st.lists(st.sampled_from((0.25, 0.5, 0.75, 3.0)), min_size=1, max_size=40), st.floats(0, 1))
def test_as_many_as_the_share_are_marked_and_all_that_tie(
    dtype: torch.dtype, values: list[float], share: float
) -> None:
    """Whichever way the lowest of them is found: by numpy, or by torch where numpy does not know the type."""
    count = math.floor(share * len(values))
    lowest = sorted(values, reverse=True)[count - 1] if count else math.inf
    marked = masks.most_sensitive(torch.tensor(values, dtype=dtype), share)
    assert [value >= lowest for value in values] == marked.tolist()


def test_least_sensitive_and_drawn_mark_exactly_their_share() -> None:
    """Ties do not add to the least sensitive; chance ignores the scores."""
    scores = torch.tensor([0.0, 0.0, 0.0, 5.0, 1.0])
    assert [True, True, False, False, False] == masks.least_sensitive(scores, 0.5).tolist()
    assert 2 == int(masks.drawn(scores, 0.5, generators.generator(1)).sum())


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 40))
def test_packed_masks_come_back(bits: list[bool], cut: int) -> None:
    """Eight entries to a byte, in the order of names, and back; numpy packs alike."""
    mask = {"b": torch.tensor(bits[cut:], dtype=torch.bool), "a": torch.tensor(bits[:cut], dtype=torch.bool)}
    packed = masks.pack(mask)
    assert np.packbits(bits, bitorder="little").tolist() == packed.tolist()
    assert {name: value.tolist() for name, value in mask.items()} == {
        name: value.tolist() for name, value in masks.unpack(packed, mask).items()
    }


@given(st.lists(st.lists(st.booleans(), max_size=20), min_size=1, max_size=6))
def test_masks_that_come_one_at_a_time_are_packed_as_one(parts: list[list[bool]]) -> None:
    """Wherever one ends and the next begins."""
    packed = masks.pack_each(torch.tensor(part, dtype=torch.bool) for part in parts)
    bits = np.array([bit for part in parts for bit in part], dtype=bool)
    assert np.packbits(bits, bitorder="little").tolist() == packed.tolist()


def test_density_and_jaccard() -> None:
    """Three of four are marked; two masks share one of three marks; empty masks share none."""
    assert 0.75 == masks.density({"x": torch.tensor([True, True]), "y": torch.tensor([[True], [False]])})
    assert 1 / 3 == masks.jaccard(pack_bits("110"), pack_bits("011"))
    assert 0.0 == masks.jaccard(pack_bits("0"), pack_bits("0"))


def test_padding_counts_for_nothing() -> None:
    """Whatever a site puts behind its last entry; the mask it sent stays as it was."""
    sent = torch.tensor([255, 255], dtype=torch.uint8)
    assert [11, 16] == [masks.count_marks(masks.cut_padding(sent, entries)) for entries in (11, 16)]
    assert 16 == masks.count_marks(sent)
