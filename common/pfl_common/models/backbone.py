"""The interface of every network: an encoder, a head, and the width between them."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

from torch import nn

from pfl_common.errors import SettingError


@dataclass(frozen=True)
class Backbone:
    """A network in two parts: the encoder turns an example into features, the head turns those into class scores.

    `features` is the width K of the vector that leaves the encoder. The head returns logits. `name` is the one a run
    gives it, for methods whose defaults differ by network; empty for a network that is not of the list. `frozen` are
    the modules and tensors that stand still, by their names in a participant.
    """

    encoder: nn.Module
    head: nn.Module
    features: int
    name: str = ""
    frozen: tuple[str, ...] = ()

    def another_head(self) -> nn.Module:
        """Return one more head of the same architecture, for methods that train several.

        It starts with the values of `head` at this moment and shares no tensor with it.
        """
        return copy.deepcopy(self.head)

    @property
    def has_projector(self) -> bool:
        """Whether the encoder ends in a projector (`--encoder-projector`)."""
        return [name for name, _ in self.encoder.named_children()] == ["body", "projector"]

    def expect_linear_head(self, method: str) -> None:
        """Refuse a head of several layers, for methods that put something of their own in its place."""
        if not isinstance(self.head, nn.Linear):
            name = self.name or "this backbone"
            raise SettingError(
                f"{method} has a fixed classifier in place of the head, and {name} has a head of several layers",
                expected="a backbone whose head is one linear layer",
                advice="choose such a backbone (digits instead of digits_stack_head, for example) or another method",
            )


def image_shape(shape: tuple[int, ...], *, backbone: str, smallest: int) -> tuple[int, int, int]:
    """Check that the data are images large enough for this network; return channels, height and width."""
    if len(shape) != 3 or min(shape) < 1:
        raise SettingError(
            f"the backbone {backbone} got examples of shape {shape}",
            expected="images as (channels, height, width), each 1 or more",
            advice="check the data set, or choose the backbone mlp, which takes any shape",
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise SettingError(
            f"the backbone {backbone} got images of {height}x{width} pixels",
            expected=f"at least {smallest}x{smallest}",
            advice="enlarge the images, or choose a backbone that takes small ones, such as resnet8 or mlp",
        )
    return channels, height, width


def flat_width(shape: tuple[int, ...], *, backbone: str) -> int:
    """Count the numbers in one example, whatever its shape."""
    if not shape or min(shape) < 1:
        raise SettingError(
            f"the backbone {backbone} got examples of shape {shape}",
            expected="one size or several, each 1 or more",
            advice="check the data set",
        )
    return math.prod(shape)
