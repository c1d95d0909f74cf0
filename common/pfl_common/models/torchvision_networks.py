"""torchvision's classification networks as backbones: `torchvision:` and torchvision's own name.

Names and networks are asked of torchvision; no list of ours has to follow it. One rule cuts each network: the last
layer that has parameters, in the order of its modules, is the head, and has to be an `nn.Linear`; all the rest, with
that layer replaced by `nn.Identity`, is the encoder, dropout before the head included. There are no auxiliary outputs.
The head is a layer like any other backbone's; the encoder's first values are drawn as torchvision draws them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn

from pfl_common.errors import SettingError
from pfl_common.models.backbone import Backbone, image_shape
from pfl_common.models.torchvision_import import import_torchvision
from pfl_common.models.without_numbers import without_numbers

PREFIX = "torchvision:"
LARGEST_SIDE = 512
"""Up to here a size is looked for that a network takes."""
_COLOURS = 3
_GREY = 1
_FITS_NOT = (RuntimeError, ValueError, AssertionError, ZeroDivisionError)
"""What torch and torchvision raise for pictures that are too small, or of a size they do not take."""


@dataclass(frozen=True)
class _Plan:
    """What a network is built from."""

    name: str
    """torchvision's."""
    channels: int
    height: int
    width: int

    @property
    def fed(self) -> int:
        """Channels that the first convolution gets: grey pictures are shown to it as if they had colours."""
        return _COLOURS if self.channels == _GREY else self.channels


class TorchvisionEncoder(nn.Module):
    """A network of torchvision without its head; below `network` its tensors have torchvision's names.

    A grey picture is repeated over three channels, so that the first convolution stays the one that pretrained
    weights are for. For any other number but three, the first convolution is one of that many channels.
    """

    draws_whole = True
    """`reset_parameters` draws every layer below."""

    def __init__(self, plan: _Plan) -> None:
        super().__init__()
        self._plan = plan
        self.network, self.features, self.head_place = _cut(plan)

    def reset_parameters(self) -> None:
        """Draw new values from torch's generator, by torchvision's own rule for this network."""
        fresh, *_ = _cut(self._plan)
        self.network.load_state_dict(fresh.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        """Features of a batch of pictures."""
        shown = x.expand(-1, _COLOURS, -1, -1) if self._plan.channels == _GREY else x
        features: Tensor = self.network(shown)
        return features


def names() -> tuple[str, ...]:
    """Every classification network of the installed torchvision, with the prefix."""
    models = import_torchvision("torchvision.models")
    return tuple(sorted(f"{PREFIX}{name}" for name in models.list_models(module=models)))


def build_torchvision(name: str, shape: tuple[int, ...], classes: int) -> Backbone:
    """Make the network of this name, one of `names`, for pictures of this shape."""
    plan = _Plan(name.removeprefix(PREFIX), *image_shape(shape, backbone=name, smallest=1))
    _check_size(plan)
    encoder = TorchvisionEncoder(plan)
    return Backbone(encoder, nn.Linear(encoder.features, classes), encoder.features)


def _cut(plan: _Plan) -> tuple[nn.Module, int, str]:
    """The network with its last layer replaced by nothing, how many features that layer took, and where it was."""
    network = _make(plan)
    last, layer = [
        (name, part) for name, part in network.named_modules() if list(part.parameters(recurse=False))
    ][-1]
    if not isinstance(layer, nn.Linear):
        raise SettingError(
            f"{PREFIX}{plan.name} ends in a layer of the kind {type(layer).__name__}",
            expected="a network whose last layer with parameters is nn.Linear: that layer is the head",
            advice="choose another one: pfl-server --list-backbones",
        )
    _put(network, last, nn.Identity())
    if plan.fed != _COLOURS:
        _widen(network, plan.fed)
    return network, layer.in_features, last


def _make(plan: _Plan) -> nn.Module:
    models = import_torchvision("torchvision.models")
    builder = models.get_model_builder(plan.name)
    words = _words(builder, plan)
    try:
        network: nn.Module = builder(weights=None, **words)
    except NotImplementedError:
        # Some compute their widths with tensors, which without numbers (on the device meta) cannot be done.
        with torch.device("cpu"):
            network = builder(weights=None, **words)
        network.to(torch.get_default_device())
    return network


def _words(builder: object, plan: _Plan) -> Mapping[str, object]:
    """What the network's class can be told: the pictures' size, no auxiliary outputs, the published first values."""
    made = inspect.signature(inspect.unwrap(builder), eval_str=True).return_annotation  # type: ignore[arg-type]
    offered = {
        "image_size": plan.height,
        "input_size": (plan.height, plan.width),
        "aux_logits": False,
        "init_weights": True,
    }
    known = inspect.signature(made).parameters
    return {name: value for name, value in offered.items() if name in known}


def _put(network: nn.Module, place: str, layer: nn.Module) -> None:
    parent, _, own = place.rpartition(".")
    setattr(network.get_submodule(parent), own, layer)


def _widen(network: nn.Module, channels: int) -> None:
    """Put a convolution of this many channels in the first one's place."""
    place, first = next((name, part) for name, part in network.named_modules() if isinstance(part, nn.Conv2d))
    own = {name: getattr(first, name) for name in ("kernel_size", "stride", "padding", "dilation")}
    _put(network, place, nn.Conv2d(channels, first.out_channels, bias=first.bias is not None, **own))


@cache
def _fits(plan: _Plan) -> bool:
    """Whether one sample passes through the network, tried without numbers."""
    with without_numbers():
        try:
            network, features, _ = _cut(plan)
            made = network.eval()(torch.empty(1, plan.fed, plan.height, plan.width))
        except _FITS_NOT:
            return False
    return tuple(made.shape) == (1, features)


def _check_size(plan: _Plan) -> None:
    if _fits(plan):
        return
    side = _next_size(plan)
    raise SettingError(
        f"the backbone {PREFIX}{plan.name} got images of {plan.height}x{plan.width} pixels",
        expected=f"a size it takes, the next being {side}x{side}" if side else "a size it takes",
        advice=f"--image-size {side or 224}, or a backbone that takes small images, such as resnet8 or mlp",
    )


def _next_size(plan: _Plan) -> int:
    """The side of the next larger square pictures that the network takes; 0 if that is beyond all bounds."""
    builder = import_torchvision("torchvision.models").get_model_builder(plan.name)
    told = {"image_size", "input_size"} & set(_words(builder, plan))
    first, step = max(plan.height, plan.width), 1 if told else 16
    # Networks that are told the size want multiples of something; for all others, whatever is large enough is taken.
    coarse = next((side for side in range(first, LARGEST_SIDE + 1, step) if _fits_square(plan, side)), 0)
    return next(
        (side for side in range(max(first, coarse - step + 1), coarse) if _fits_square(plan, side)), coarse
    )


def _fits_square(plan: _Plan, side: int) -> bool:
    return _fits(replace(plan, height=side, width=side))
