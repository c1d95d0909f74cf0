"""Pictures are scaled channel by channel when they are taken, and nowhere else."""

from __future__ import annotations

import pytest
import torch

from pfl_common.learning import method
from pfl_common.learning.method import Samples
from pfl_common.learning.pixels import Pixels
from pfl_common.spec.run import Model

MODEL = Model("cnn", (2, 1, 2), ("a", "b"), pixel_mean=(0.5, 0.0), pixel_deviation=(0.5, 0.25))
X = torch.tensor([[[[0, 255]], [[51, 0]]], [[[255, 255]], [[0, 0]]]], dtype=torch.uint8)
SCALED = torch.tensor([[[[-1.0, 1.0]], [[0.8, 0.0]]], [[[1.0, 1.0]], [[0.0, 0.0]]]])


def test_by_hand() -> None:
    """Bytes become 0..1 first; pictures that are 0..1 already are scaled alike; without scaling they stay so."""
    y = torch.tensor([0, 1])
    for x in (X, X.float() / 255):
        [(taken, _)] = Samples(x, y, Pixels.of(MODEL)).batches(9)
        torch.testing.assert_close(taken, SCALED)
    assert Pixels.of(Model("cnn", (2, 1, 2), ("a", "b"))) is None


def test_some_of_the_samples_are_scaled_as_all() -> None:
    """In memory and in a mapped file, of which only places are kept."""
    y = torch.tensor([0, 1])
    for whole in (Samples(X, y, Pixels.of(MODEL)), Samples(X, y, Pixels.of(MODEL), rows=torch.arange(2))):
        for index in (torch.tensor([1]), torch.tensor([False, True])):
            [(x, labels)] = whole.only(index).batches(9)
            torch.testing.assert_close(x, SCALED[1:])
            assert [1] == labels.tolist()
    assert X.data_ptr() == whole.only(index).x.data_ptr()


def test_a_mapped_file_goes_to_a_card_whole_if_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one batch by batch."""
    mapped = Samples(X, torch.tensor([0, 1]), rows=torch.arange(2))
    assert ("cpu", True) == (mapped.to("cpu").x.device.type, mapped.to("cpu").rows is not None)
    small = mapped.to("meta")
    assert ("meta", None) == (small.x.device.type, small.rows)
    monkeypatch.setattr(method, "MOST_ON_DEVICE", 7)
    large = mapped.to("meta")
    assert ("cpu", "meta") == (large.x.device.type, large.take(torch.tensor([1]))[0].device.type)
