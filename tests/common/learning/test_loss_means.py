"""Parts of a loss, each in the mean over samples."""

from __future__ import annotations

import pytest
import torch

from pfl_common.learning.loss_means import Means

torch.set_num_threads(1)


def test_batches_count_by_their_samples() -> None:
    """(3 · 1 + 1 · 5) / 4 = 2, and (3 · 2 + 1 · 6) / 4 = 3; no graph is kept."""
    means, grown = Means(), torch.tensor(1.0, requires_grad=True)
    means.note(3, one=grown, two=torch.tensor(2.0))
    means.note(1, one=torch.tensor(5.0), two=torch.tensor(6.0))
    assert {"part/one": pytest.approx(2.0), "part/two": pytest.approx(3.0)} == means.told("part")


def test_nothing_noted_is_nothing_told() -> None:
    """A site whose every batch was dropped has no numbers."""
    assert {} == Means().told("part")
