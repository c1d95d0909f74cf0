"""A model as it came: looked at where it lies, copied where it did not come."""

from __future__ import annotations

import torch
from torch import nn

from pfl_common.learning.received import as_received


def test_what_came_is_not_copied_and_the_rest_stays_as_it_was() -> None:
    """The very tensor of the download; of the parameter that did not come a copy, which training leaves alone."""
    layer, came = nn.Linear(2, 1), {"weight": torch.tensor([[3.0, 4.0]]), "running_mean": torch.zeros(1)}
    bias = layer.bias.item()
    found = as_received(layer, came)
    with torch.no_grad():
        layer.bias.add_(1)
    assert {"weight", "bias"} == found.keys()
    assert came["weight"] is found["weight"]
    assert (bias, False) == (found["bias"].item(), found["bias"].requires_grad)


def test_where_nothing_came_all_is_copied() -> None:
    """As the model is."""
    layer = nn.Linear(2, 1)
    found = as_received(layer, {})
    assert all(torch.equal(value, found[name]) for name, value in layer.named_parameters())
    assert found["weight"].data_ptr() != layer.weight.data_ptr()
