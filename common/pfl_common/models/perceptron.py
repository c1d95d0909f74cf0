"""Networks of fully connected layers only, for tables and other flat data."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from pfl_common.models.backbone import Backbone, flat_width

_WIDTHS = (1000, 500, 100)


def mlp(shape: tuple[int, ...], classes: int) -> Backbone:
    """Three fully connected layers of 1000, 500 and 100 units; images are flattened first."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    before = flat_width(shape, backbone="mlp")
    for number, width in enumerate(_WIDTHS, start=1):
        layers[f"fc{number}"] = nn.Linear(before, width)
        layers[f"relu{number}"] = nn.ReLU()
        before = width
    return Backbone(encoder=nn.Sequential(layers), head=nn.Linear(before, classes), features=before)
