"""A network's initial values follow the published rule and depend on nothing but the seed of each layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from pfl_common.models import Backbone, ProjectorShape, build, names
from pfl_common.randomness import generators

torch.set_num_threads(1)

SHAPE = (1, 64, 64)


def leaves(backbone: Backbone) -> dict[str, nn.Module]:
    """All layers that own a parameter, by name."""
    whole = nn.ModuleDict({"encoder": backbone.encoder, "head": backbone.head})
    return {name: part for name, part in whole.named_modules() if list(part.parameters(recurse=False))}


def draw(backbone: Backbone) -> dict[str, nn.Module]:
    """Draw every layer anew, seeded by its name, and return the layers."""
    generators.initialise(nn.ModuleDict({"encoder": backbone.encoder, "head": backbone.head}), 11)
    return leaves(backbone)


def tensors(backbone: Backbone) -> dict[str, torch.Tensor]:
    whole = nn.ModuleDict({"encoder": backbone.encoder, "head": backbone.head})
    return dict(whole.state_dict())


@pytest.mark.parametrize("name", [name for name in names() if name != "alexnet_bn"])
def test_every_layer_can_be_drawn_anew(name: str) -> None:
    """Whatever a layer held before, seeding it by its name gives the same values."""
    shape, tokens = {"fasttext": ((6,), 9), "har_cnn": ((2, 30), 0)}.get(name, ((1, 28, 28), 0))
    first, second = (
        build(name, shape=shape, classes=3, tokens=tokens, projector=ProjectorShape(hidden=8))
        for _ in range(2)
    )
    for tensor in tensors(second).values():
        tensor.fill_(9)
    draw(first)
    draw(second)
    for key, value in tensors(first).items():
        assert torch.equal(value, tensors(second)[key]), key


def test_building_is_repeatable_and_leaves_the_generator_alone() -> None:
    """Two builds are equal to the bit, and later draws are what they would have been without them."""
    with generators.scope("test"):
        first = build("resnet8", shape=SHAPE, classes=3)
        after = torch.rand(3)
        second = build("resnet8", shape=SHAPE, classes=3)
    with generators.scope("test"):
        assert torch.equal(torch.rand(3), after)
    for key, value in tensors(first).items():
        assert torch.equal(value, tensors(second)[key]), key


@pytest.mark.parametrize("name", ["cnn", "mlp", "digits_stack_head"])
def test_linear_and_convolution_are_uniform(name: str) -> None:
    """Weights and biases are uniform within one over the square root of the number of inputs."""
    for layer, part in draw(build(name, shape=(3, 32, 32), classes=10)).items():
        if not isinstance(part, nn.Linear | nn.Conv2d):
            continue
        bound = 1 / math.sqrt(part.weight[0].numel())
        assert part.bias is not None
        assert max(part.weight.abs().max().item(), part.bias.abs().max().item()) <= bound * (1 + 1e-6), layer
        deviation = part.weight.std().item() * math.sqrt(3) / bound
        assert abs(deviation - 1) < 5 / math.sqrt(part.weight.numel()), layer
        assert part.bias.abs().max().item() > 0.4 * bound, layer


def test_residual_convolutions_are_normal() -> None:
    """Convolutions of residual networks have variance 2/fan_out and tails that no uniform draw has."""
    backbone = build("resnet10", shape=SHAPE, classes=10)
    convolutions = {name: part for name, part in draw(backbone).items() if isinstance(part, nn.Conv2d)}
    stem, blocks, shortcuts = 1, 2 * 4, 3
    assert stem + blocks + shortcuts == len(convolutions)
    for name, part in convolutions.items():
        area = part.kernel_size[0] * part.kernel_size[1]
        expected = math.sqrt(2 / (part.out_channels * area))
        assert abs(part.weight.std().item() / expected - 1) < 5 / math.sqrt(2 * part.weight.numel()), name
        assert part.weight.abs().max().item() > 2.5 * expected, name
        assert part.bias is None


@pytest.mark.parametrize("name", ["resnet8", "digits", "alexnet_bn"])
def test_normalisation_starts_neutral(name: str) -> None:
    """Batch normalisation starts with scale 1, shift 0, mean 0, variance 1, momentum 0.1 and epsilon 1e-5."""
    backbone = build(name, shape=SHAPE, classes=2, projector=ProjectorShape(hidden=8))
    layers = [
        part for part in backbone.encoder.modules() if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)
    ]
    assert layers
    momentum, epsilon = 0.1, 1e-5
    for layer in layers:
        assert (momentum, epsilon) == (layer.momentum, layer.eps)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        for tensor, value in (
            (layer.weight, 1),
            (layer.bias, 0),
            (layer.running_mean, 0),
            (layer.running_var, 1),
        ):
            assert bool((tensor == value).all())
