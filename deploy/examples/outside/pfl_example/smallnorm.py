"""A small network for pictures that does not normalise over the batch: sites with few samples can train it."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from pfl_common.models import Backbone
from pfl_common.models.backbone import image_shape

_WIDTH = 16
_FEATURES = 32
_GROUPS = 4


def smallnorm(shape: tuple[int, ...], classes: int) -> Backbone:
    """Two convolutions with group normalisation, their average, and a linear head."""
    channels, _, _ = image_shape(shape, backbone="smallnorm", smallest=4)
    encoder = nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(channels, _WIDTH, 3, padding=1),
            norm1=nn.GroupNorm(_GROUPS, _WIDTH),
            relu1=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(_WIDTH, _FEATURES, 3, padding=1),
            norm2=nn.GroupNorm(_GROUPS, _FEATURES),
            relu2=nn.ReLU(),
            average=nn.AdaptiveAvgPool2d(2),
            flatten=nn.Flatten(),
        )
    )
    return Backbone(encoder=encoder, head=nn.Linear(4 * _FEATURES, classes), features=4 * _FEATURES)
