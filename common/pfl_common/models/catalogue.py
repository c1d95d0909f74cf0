"""The networks that a run can name, and the one function that builds them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torch import nn

from pfl_common.app import plugins
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
_TORCHVISION = "torchvision:"
"""How the names of torchvision's networks begin; only who asks for one pays for importing it."""


def names() -> tuple[str, ...]:
    """List the networks of this house that a run can name."""
    return tuple(sorted((*_BACKBONES, _TEXT)))


def list_torchvision() -> tuple[str, ...]:
    """List torchvision's classification networks, as a run names them; this imports torchvision."""
    from pfl_common.models import torchvision_networks

    return torchvision_networks.names()


def describe(name: str) -> str:
    """The first sentence about one of our own networks."""
    made = fasttext if name == _TEXT else _BACKBONES[name]
    doc = made.func.__doc__ if isinstance(made, partial) else made.__doc__
    return (doc or "").strip().partition("\n")[0]


def check_name(name: str) -> None:
    """Refuse a name that no network has: ours, an installed package's, or torchvision's."""
    if name.startswith(_TORCHVISION):
        known = list_torchvision()
    else:
        plugins.find("backbone", name, names())
        known = (*names(), *plugins.names("backbone"))
    if name not in known:
        raise SettingError(
            f"there is no backbone {name!r}", expected="one that is", advice=nearest(name.lower(), known)
        )


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
    check_name(name)
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
        backbone = replace(_find(name, tokens)(shape, classes), name=name)
        return backbone if projector is None else _with_projector(backbone, projector)


def _find(name: str, tokens: int) -> Callable[[tuple[int, ...], int], Backbone]:
    if name == _TEXT:
        return partial(fasttext, tokens=tokens)
    if name.startswith(_TORCHVISION):
        from pfl_common.models.torchvision_networks import build_torchvision

        return partial(build_torchvision, name)
    plugin = plugins.find("backbone", name)
    return partial(_build_plugin, plugin) if plugin else _BACKBONES[name]


def _build_plugin(plugin: plugins.Plugin, shape: tuple[int, ...], classes: int) -> Backbone:
    make = plugin.load()
    if not callable(make):
        raise plugin.fault("is not a function")
    made = make(shape, classes)
    if not isinstance(made, Backbone):
        raise plugin.fault(f"returns a {type(made).__name__}, not a pfl_common.models.Backbone")
    return made


def _with_projector(backbone: Backbone, shape: ProjectorShape) -> Backbone:
    parts = OrderedDict[str, nn.Module](
        body=backbone.encoder, projector=build_projector(backbone.features, shape)
    )
    return replace(backbone, encoder=nn.Sequential(parts))
