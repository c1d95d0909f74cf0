"""The small network between encoder and head that makes shared features a site's own (DualFed, sec. 5.3)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import nn

from pfl_common.errors import SettingError


@dataclass(frozen=True)
class ProjectorShape:
    """The sizes of the projector's layers.

    `depth` counts its linear layers (D), `hidden` is the width between them (H; without effect at depth 1),
    and `bn` says whether batch normalisation follows each of them.
    """

    depth: int = 2
    hidden: int = 256
    bn: bool = True

    def __post_init__(self) -> None:
        if self.depth not in (1, 2, 3):
            raise SettingError(
                f"the projector's depth is {self.depth}", expected="1, 2 or 3", advice="change the depth"
            )
        if self.hidden < 1:
            raise SettingError(
                f"the projector's hidden width is {self.hidden}",
                expected="1 or more",
                advice="change the width",
            )


def build_projector(features: int, shape: ProjectorShape) -> nn.Sequential:
    """Make a projector that takes and returns vectors of this many features.

    ReLU stands before batch normalisation, as in the paper, and the last layer has no ReLU.
    """
    widths = [features, *[shape.hidden] * (shape.depth - 1), features]
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, shape.depth + 1):
        layers[f"fc{number}"] = nn.Linear(widths[number - 1], widths[number])
        if number < shape.depth:
            layers[f"relu{number}"] = nn.ReLU()
        if shape.bn:
            layers[f"bn{number}"] = nn.BatchNorm1d(widths[number])
    return nn.Sequential(layers)
