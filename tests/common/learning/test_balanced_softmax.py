"""Balanced softmax: classes by how often they occur, and none that does not."""

from __future__ import annotations

import pytest
import torch

from pfl_common.learning.balanced_softmax import balanced_cross_entropy

torch.set_num_threads(1)


def test_balanced_softmax_by_hand() -> None:
    """Logits (1, 1, 0), counts (8, 2, 0), class 1: log(10 e / 2 e) = log 5, and the absent class has no gradient."""
    scores = torch.tensor([[1.0, 1.0, 0.0]], requires_grad=True)
    loss = balanced_cross_entropy(scores, torch.tensor([1]), torch.tensor([8, 2, 0]))
    loss.backward()
    assert 1.609438 == pytest.approx(loss.item())
    assert [[pytest.approx(0.8), pytest.approx(-0.8), 0.0]] == scores.grad.tolist()


def test_equal_counts_are_the_plain_cross_entropy() -> None:
    """However many they are."""
    scores, labels = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, 3.0]]), torch.tensor([0, 1])
    plain = torch.nn.functional.cross_entropy(scores, labels)
    torch.testing.assert_close(balanced_cross_entropy(scores, labels, torch.tensor([7, 7, 7])), plain)
