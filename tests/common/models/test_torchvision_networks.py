"""torchvision's networks, cut into encoder and head: the function stays torchvision's, first values follow the seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.learning.partition import held_back, running_statistics
from pfl_common.models import Backbone, ProjectorShape, build, list_torchvision, torchvision_import
from pfl_common.randomness import generators

torch.set_num_threads(1)

SMALL = "torchvision:shufflenet_v2_x0_5"
SIDES = {"inception_v3": 75, "maxvit_t": 224, "alexnet": 63}
ONE_OF_EACH = (
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "inception_v3",
    "maxvit_t",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "shufflenet_v2_x0_5",
    "swin_t",
    "swin_v2_t",
    "vgg11_bn",
    "vit_b_32",
)


def whole(backbone: Backbone) -> nn.ModuleDict:
    """Both parts, named as a method names them."""
    return nn.ModuleDict({"encoder": backbone.encoder, "head": backbone.head})


def drawn(name: str, seed: int, shape: tuple[int, ...] = (3, 32, 32)) -> dict[str, torch.Tensor]:
    """First values by the run's seed."""
    parts = whole(build(name, shape=shape, classes=3))
    generators.initialise(parts, seed)
    return dict(parts.state_dict())


def test_every_network_of_torchvision_is_listed() -> None:
    """By torchvision's own list; one of each class of its networks is tried below."""
    models = torchvision_import.import_torchvision("torchvision.models")
    listed = list_torchvision()
    assert {f"torchvision:{name}" for name in models.list_models(module=models)} == set(listed)
    assert {f"torchvision:{name}" for name in ONE_OF_EACH} < set(listed)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_cut_changes_nothing(name: str) -> None:
    """The head behind the encoder says what torchvision's whole network says with the same values."""
    models, side = torchvision_import.import_torchvision("torchvision.models"), SIDES.get(name, 32)
    backbone = build(f"torchvision:{name}", shape=(3, side, side), classes=3)
    told = {"vit_b_32": {"image_size": side}}.get(name, {})
    if name in ("googlenet", "inception_v3"):
        told = {"aux_logits": False, "init_weights": False}
    theirs = models.get_model(name, weights=None, num_classes=3, **told).eval()
    last = [part for part in theirs.modules() if isinstance(part, nn.Linear)][-1]
    with torch.no_grad():
        # One of them has no bias there; a head of ours always has one.
        (last.bias if last.bias is not None else backbone.head.bias).zero_()
        backbone.head.bias.zero_()
        last.weight.copy_(backbone.head.weight)
    missing, unknown = theirs.load_state_dict(backbone.encoder.network.state_dict(), strict=False)
    assert ([], {"weight", "bias"}) == (unknown, {name.rpartition(".")[2] for name in missing} | {"bias"})
    x = torch.linspace(-2, 2, 2 * 3 * side * side).sin().reshape(2, 3, side, side)
    with torch.no_grad():
        features = backbone.encoder.eval()(x)
        assert torch.equal(theirs(x), backbone.head(features))
    assert (2, backbone.features) == tuple(features.shape)
    backbone.expect_linear_head("any")


@pytest.mark.parametrize("name", ["torchvision:swin_t", "torchvision:googlenet", SMALL])
def test_first_values_follow_the_seed(name: str) -> None:
    """Two machines draw the same, another seed draws all that is drawn otherwise; constants stay."""
    first, again, other = drawn(name, 1), drawn(name, 1), drawn(name, 2)
    assert [] == [key for key in first if not torch.equal(first[key], again[key])]
    varied = [key for key, value in first.items() if value.is_floating_point() and len(value.unique()) > 9]
    assert len(varied) > 50
    assert [] == [key for key in varied if torch.equal(first[key], other[key]) and "coords" not in key]


def test_first_values_are_those_torchvision_would_draw() -> None:
    """Its rule for its own network, not that of each layer by itself: residual networks begin with N(0, 2/fan_out)."""
    weight = drawn("torchvision:resnet18", 5)["encoder.network.layer4.0.conv1.weight"]
    expected = (2 / (512 * 9)) ** 0.5
    assert abs(float(weight.std()) / expected - 1) < 0.01


def test_building_leaves_the_generator_alone() -> None:
    """Later draws are what they would have been without a network."""
    with generators.scope("test"):
        build(SMALL, shape=(3, 32, 32), classes=3)
        after = torch.rand(3)
    with generators.scope("test"):
        assert torch.equal(torch.rand(3), after)


def test_a_grey_picture_is_shown_as_one_of_equal_colours() -> None:
    """The first convolution stays the one that pretrained weights are for."""
    grey, colour = (build(SMALL, shape=(channels, 32, 32), classes=3).encoder.eval() for channels in (1, 3))
    colour.load_state_dict(grey.state_dict())
    x = torch.linspace(0, 1, 2 * 32 * 32).reshape(2, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(grey(x), colour(x.repeat(1, 3, 1, 1)))


def test_other_channels_get_a_first_convolution_of_their_own() -> None:
    """Its strides and width stay."""
    own, usual = (build("torchvision:resnet18", shape=(n, 32, 32), classes=3).encoder for n in (4, 3))
    first, theirs = own.network.conv1, usual.network.conv1
    assert (4, theirs.out_channels, theirs.stride) == (first.in_channels, first.out_channels, first.stride)
    assert (1, own.features) == tuple(own.eval()(torch.zeros(1, 4, 32, 32)).shape)


@pytest.mark.parametrize(
    ("name", "shape", "seen", "expected"),
    [
        ("inception_v3", (3, 32, 32), "got images of 32x32 pixels", "the next being 75x75"),
        ("alexnet", (3, 62, 62), "got images of 62x62 pixels", "the next being 63x63"),
        ("vit_b_16", (1, 50, 50), "got images of 50x50 pixels", "the next being 64x64"),
        ("vit_b_16", (3, 32, 64), "got images of 32x64 pixels", "the next being 64x64"),
        ("vit_b_16", (3, 513, 513), "got images of 513x513 pixels", "a size it takes"),
        ("squeezenet1_1", (3, 64, 64), "ends in a layer of the kind Conv2d", "is nn.Linear"),
        ("resnet19", (3, 64, 64), "no backbone 'torchvision:resnet19'", "one that is"),
        ("resnet18", (561,), "got examples of shape (561,)", "(channels, height, width)"),
    ],
)
def test_unfit(name: str, shape: tuple[int, ...], seen: str, expected: str) -> None:
    """What a network does not take is refused in words that name a size it takes."""
    with pytest.raises(SettingError) as caught:
        build(f"torchvision:{name}", shape=shape, classes=2)
    assert seen in caught.value.seen
    assert expected in caught.value.expected
    assert caught.value.advice


def test_without_numbers() -> None:
    """Memory is estimated on networks that have shapes only; one that computes with tensors while it is made is too."""
    for name in (SMALL, "torchvision:regnet_y_400mf"):
        with torch.device("meta"):
            encoder = build(name, shape=(3, 32, 32), classes=2).encoder
        assert {"meta"} == {value.device.type for value in encoder.state_dict().values()}, name


def test_projector_and_batch_norm_policies() -> None:
    """The projector stands behind the network, and the policies find torchvision's batch norms by their type."""
    backbone = build(SMALL, shape=(3, 32, 32), classes=3, projector=ProjectorShape(hidden=8))
    assert backbone.has_projector
    parts = whole(backbone)
    generators.initialise(parts, 1)
    statistics = running_statistics(parts)
    assert "encoder.body.network.conv1.1.running_mean" in statistics
    assert (set(), statistics) == (held_back(parts, "share_all"), held_back(parts, "local_stats"))
    assert statistics | {"encoder.body.network.conv1.1.weight"} < held_back(parts, "local_bn")


def test_a_machine_without_torchvision_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, with what to install."""
    monkeypatch.setattr(torchvision_import.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match="torchvision is not installed here"):
        build(SMALL, shape=(3, 32, 32), classes=2)
