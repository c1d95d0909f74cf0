"""The bytes of many tensors, in few pieces, are those of each of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pfl_common.tensors import small_tensors
from pfl_common.tensors.mapped import BLOCK
from pfl_common.tensors.small_tensors import SMALL, iterate_bytes

torch.set_num_threads(1)


def one_by_one(values: list[Tensor]) -> bytes:
    """As it would be without all this."""
    return b"".join(
        value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for value in values
    )


MIXED = [
    torch.arange(6.0).view(2, 3).t(),
    nn.Parameter(torch.ones(3)),
    torch.tensor(7),
    torch.zeros(0, 4),
    torch.tensor([True, False]),
    torch.arange(3.0, dtype=torch.float64),
    torch.full((SMALL,), 2.0),
    torch.arange(4.0).bfloat16(),
    torch.tensor(1.5),
]
"""Turned round, a parameter, one number, none, truth values, long numbers, a large one, short numbers."""


def test_the_bytes_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are, and however few may be together."""
    for most in (BLOCK, 2):
        monkeypatch.setattr(small_tensors, "BLOCK", most)
        assert one_by_one(MIXED) == b"".join(iterate_bytes(MIXED))
    assert [] == list(iterate_bytes([]))


def test_small_ones_are_one_piece() -> None:
    """Of a hundred of one type; a large one is looked at where it lies."""
    large = torch.zeros(SMALL)
    pieces = list(iterate_bytes([torch.ones(5)] * 100 + [large, torch.ones(2)]))
    assert [2000, 4 * SMALL, 8] == [len(piece) for piece in pieces]
    large += 1
    assert 1.0 == torch.frombuffer(pieces[1], dtype=torch.float32)[0]


def test_truths_are_carried_as_they_are() -> None:
    """A byte of two, from wherever, is not made a one because others stand beside it."""
    odd = torch.tensor([2], dtype=torch.uint8).view(torch.bool)
    assert b"\x01\x02\x00" == b"".join(iterate_bytes([torch.tensor(True), odd, torch.tensor(False)]))
