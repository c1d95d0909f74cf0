"""Residual networks for images: every block adds its input to its output."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from pfl_common.models.backbone import Backbone, image_shape

_STAGE_WIDTHS = (64, 128, 256, 512)


class ResidualConv(nn.Conv2d):
    """A convolution without bias, drawn from N(0, 2/fan_out) as residual networks are."""

    def __init__(self, before: int, after: int, *, kernel: int, stride: int = 1) -> None:
        super().__init__(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)

    def reset_parameters(self) -> None:
        """Draw new weights from torch's generator."""
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions whose result is added to the input."""

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = ResidualConv(before, after, kernel=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU()
        self.conv2 = ResidualConv(after, after, kernel=3)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = _shortcut(before, after, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output for a batch of feature maps."""
        inner: Tensor = self.relu(self.bn1(self.conv1(x)))
        outer: Tensor = self.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))
        return outer


def _shortcut(before: int, after: int, *, stride: int) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    conv = ResidualConv(before, after, kernel=1, stride=stride)
    return nn.Sequential(OrderedDict[str, nn.Module](conv=conv, bn=nn.BatchNorm2d(after)))


def resnet8(shape: tuple[int, ...], classes: int) -> Backbone:
    """A small residual network: three stages of one block, 256 features."""
    return _resnet(shape, classes, name="resnet8", stages=3, blocks=1)


def resnet10(shape: tuple[int, ...], classes: int) -> Backbone:
    """A small residual network: four stages of one block, 512 features."""
    return _resnet(shape, classes, name="resnet10", stages=4, blocks=1)


def resnet18(shape: tuple[int, ...], classes: int) -> Backbone:
    """The usual 18-layer residual network: four stages of two blocks, 512 features."""
    return _resnet(shape, classes, name="resnet18", stages=4, blocks=2)


def _resnet(shape: tuple[int, ...], classes: int, *, name: str, stages: int, blocks: int) -> Backbone:
    channels, _, _ = image_shape(shape, backbone=name, smallest=1)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv=ResidualConv(channels, _STAGE_WIDTHS[0], kernel=7, stride=2),
        bn=nn.BatchNorm2d(_STAGE_WIDTHS[0]),
        relu=nn.ReLU(),
        pool=nn.MaxPool2d(3, stride=2, padding=1),
    )
    before = _STAGE_WIDTHS[0]
    for number, width in enumerate(_STAGE_WIDTHS[:stages], start=1):
        layers[f"stage{number}"] = _stage(before, width, stride=1 if number == 1 else 2, blocks=blocks)
        before = width
    layers["average"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    return Backbone(encoder=nn.Sequential(layers), head=nn.Linear(before, classes), features=before)


def _stage(before: int, after: int, *, stride: int, blocks: int) -> nn.Sequential:
    rest = (BasicBlock(after, after, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(BasicBlock(before, after, stride=stride), *rest)
