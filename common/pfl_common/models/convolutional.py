"""Plain convolutional networks for images, without shortcuts between layers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn

from pfl_common.models.backbone import Backbone, image_shape

# Where the digits network is cut: before its last layer; before its three fully connected layers;
# or at that same place with one linear layer instead of the three.
DigitsHead = Literal["last", "stack", "linear"]


def cnn(shape: tuple[int, ...], classes: int) -> Backbone:
    """Two convolutions and one fully connected layer of 512 units, then the head."""
    # 16 pixels are the fewest that leave one after two 5x5 convolutions without padding, each halved.
    channels, height, width = image_shape(shape, backbone="cnn", smallest=16)
    flat = 64 * _halved_twice(height) * _halved_twice(width)
    encoder = nn.Sequential(
        OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(channels, 32, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc=nn.Linear(flat, 512),
            relu3=nn.ReLU(),
        )
    )
    return Backbone(encoder=encoder, head=nn.Linear(512, classes), features=512)


def _halved_twice(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2


def digits(shape: tuple[int, ...], classes: int, *, head: DigitsHead = "last") -> Backbone:
    """Three convolutions and three fully connected layers, all but the last batch-normalised."""
    channels, height, width = image_shape(shape, backbone="digits", smallest=4)
    flat = 128 * (height // 4) * (width // 4)
    convolutions: dict[str, nn.Module] = {
        **_convolution(1, nn.Conv2d(channels, 64, 5, padding=2), pool=nn.MaxPool2d(2)),
        **_convolution(2, nn.Conv2d(64, 64, 5, padding=2), pool=nn.MaxPool2d(2)),
        **_convolution(3, nn.Conv2d(64, 128, 5, padding=2)),
        "flatten": nn.Flatten(),
    }
    if head == "linear":
        return Backbone(encoder=_sequence(convolutions), head=nn.Linear(flat, classes), features=flat)
    stack = {**_fully_connected(1, nn.Linear(flat, 2048)), **_fully_connected(2, nn.Linear(2048, 512))}
    out = nn.Linear(512, classes)
    if head == "stack":
        return Backbone(encoder=_sequence(convolutions), head=_sequence({**stack, "out": out}), features=flat)
    return Backbone(encoder=_sequence({**convolutions, **stack}), head=out, features=512)


def digits_kd3a(shape: tuple[int, ...], classes: int) -> Backbone:
    """The other network for digits that papers use: pooling overlaps, wider layers, dropout of a half."""
    channels, height, width = image_shape(shape, backbone="digits_kd3a", smallest=1)
    flat = 128 * _halved_up_twice(height) * _halved_up_twice(width)
    encoder = _sequence(
        {
            **_convolution(1, nn.Conv2d(channels, 64, 5, padding=2), pool=nn.MaxPool2d(3, 2, padding=1)),
            **_convolution(2, nn.Conv2d(64, 64, 5, padding=2), pool=nn.MaxPool2d(3, 2, padding=1)),
            **_convolution(3, nn.Conv2d(64, 128, 5, padding=2)),
            "flatten": nn.Flatten(),
            **_fully_connected(1, nn.Linear(flat, 3072)),
            "dropout": nn.Dropout(0.5),
            **_fully_connected(2, nn.Linear(3072, 2048)),
        }
    )
    return Backbone(encoder=encoder, head=nn.Linear(2048, classes), features=2048)


def _halved_up_twice(size: int) -> int:
    return ((size + 1) // 2 + 1) // 2


def alexnet_bn(shape: tuple[int, ...], classes: int) -> Backbone:
    """AlexNet with batch normalisation after every layer but the last, and without dropout."""
    # Below 63 pixels the third pooling has less than its 3x3 window left.
    channels, _, _ = image_shape(shape, backbone="alexnet_bn", smallest=63)
    encoder = _sequence(
        {
            **_convolution(1, nn.Conv2d(channels, 64, 11, stride=4, padding=2), pool=nn.MaxPool2d(3, 2)),
            **_convolution(2, nn.Conv2d(64, 192, 5, padding=2), pool=nn.MaxPool2d(3, 2)),
            **_convolution(3, nn.Conv2d(192, 384, 3, padding=1)),
            **_convolution(4, nn.Conv2d(384, 256, 3, padding=1)),
            **_convolution(5, nn.Conv2d(256, 256, 3, padding=1), pool=nn.MaxPool2d(3, 2)),
            "average": nn.AdaptiveAvgPool2d(6),
            "flatten": nn.Flatten(),
            **_fully_connected(1, nn.Linear(256 * 6 * 6, 4096)),
            **_fully_connected(2, nn.Linear(4096, 4096)),
        }
    )
    return Backbone(encoder=encoder, head=nn.Linear(4096, classes), features=4096)


def _sequence(layers: dict[str, nn.Module]) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def _convolution(number: int, conv: nn.Conv2d, *, pool: nn.Module | None = None) -> dict[str, nn.Module]:
    block: dict[str, nn.Module] = {
        f"conv{number}": conv,
        f"conv{number}_bn": nn.BatchNorm2d(conv.out_channels),
        f"conv{number}_relu": nn.ReLU(),
    }
    return block if pool is None else {**block, f"pool{number}": pool}


def _fully_connected(number: int, linear: nn.Linear) -> dict[str, nn.Module]:
    return {
        f"fc{number}": linear,
        f"fc{number}_bn": nn.BatchNorm1d(linear.out_features),
        f"fc{number}_relu": nn.ReLU(),
    }
