"""The networks that a run can name, and the one function that builds them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torch import nn

from pfl_common.errors import SettingError, nearest
from pfl_common.models.backbone import Backbone
from pfl_common.models.convolutional import alexnet_bn, cnn, digits, digits_kd3a
from pfl_common.models.perceptron import mlp
from pfl_common.models.projector import ProjectorShape, build_projector
from pfl_common.models.resnet import resnet8, resnet10, resnet18
from pfl_common.models.sequences import fasttext, har_cnn
from pfl_common.randomness.generators import scope

_BACKBONES: dict[str, Callable[[tuple[int, ...], int], Backbone]] = {
    "alexnet_bn": alexnet_bn,
    "cnn": cnn,
    "digits": digits,
    "digits_kd3a": digits_kd3a,
    "digits_linear_head": partial(digits, head="linear"),
    "digits_stack_head": partial(digits, head="stack"),
    "har_cnn": har_cnn,
    "mlp": mlp,
    "resnet10": resnet10,
    "resnet18": resnet18,
    "resnet8": resnet8,
}
_TEXT = "fasttext"
"""The network for texts: it has to know how many numbers words can have, and takes nothing else."""


def names() -> tuple[str, ...]:
    """List the networks a run can name."""
    return tuple(sorted((*_BACKBONES, _TEXT)))


def build(
    name: str,
    *,
    shape: tuple[int, ...],
    classes: int,
    tokens: int = 0,
    projector: ProjectorShape | None = None,
) -> Backbone:
    """Make the named network for examples of this shape (without the batch) and this many classes.

    Examples are texts if `tokens` is not 0: so many numbers can their words have. With a projector the encoder becomes
    `body` followed by `projector`. The values are the same every time; each layer draws others from torch's generator
    when its `reset_parameters` is called.
    """
    if name not in names():
        raise SettingError(
            f"no backbone is called {name!r}",
            expected="the name of a backbone",
            advice=nearest(name.lower(), names()),
        )
    if tokens and name != _TEXT:
        raise SettingError(
            f"the backbone {name} got texts, whose numbers stand for words",
            expected=f"the backbone {_TEXT}",
            advice=f'choose {_TEXT}; if they are no texts, say in data.json what they are: {{"kind": "table"}}',
        )
    if classes < 2:
        raise SettingError(
            f"the backbone {name} got {classes} classes",
            expected="2 or more",
            advice="check the labels of the data set",
        )
    # Layers draw values while they are made. A draw that depended on what ran before, or disturbed what runs
    # after, would make a run's result depend on when its network was built.
    with scope("build", name):
        make = partial(fasttext, tokens=tokens) if name == _TEXT else _BACKBONES[name]
        backbone = replace(make(shape, classes), name=name)
        return backbone if projector is None else _with_projector(backbone, projector)


def _with_projector(backbone: Backbone, shape: ProjectorShape) -> Backbone:
    parts = OrderedDict[str, nn.Module](
        body=backbone.encoder, projector=build_projector(backbone.features, shape)
    )
    return replace(backbone, encoder=nn.Sequential(parts))
