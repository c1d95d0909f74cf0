"""The networks have the sizes, cuts and manners the methods count on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.models import Backbone, ProjectorShape, build, names

torch.set_num_threads(1)

TEXT, WINDOW = (200,), (9, 128)
WORDS = 98_635
"""Numbers of words in the published text network."""
SHAPES: dict[str, tuple[int, ...]] = {"fasttext": TEXT, "har_cnn": WINDOW}
"""What networks take that are not for pictures."""
MNIST, CIFAR, TINY, PHOTO = (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 256, 256)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def total(backbone: Backbone) -> int:
    return count(backbone.encoder) + count(backbone.head)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "expected"),
    [
        ("cnn", MNIST, 10, 582_026),
        ("cnn", CIFAR, 10, 878_538),
        ("cnn", CIFAR, 100, 924_708),
        ("cnn", TINY, 200, 5_694_600),
        ("resnet8", CIFAR, 10, 1_235_274),
        ("resnet10", CIFAR, 100, 4_957_092),
        ("resnet10", TINY, 200, 5_008_392),
        ("resnet18", TINY, 200, 11_279_112),
        ("alexnet_bn", PHOTO, 10, 57_063_498),
        ("digits", CIFAR, 10, 18_151_370),
        ("digits_stack_head", CIFAR, 10, 18_151_370),
        ("digits_linear_head", CIFAR, 10, 312_768 + 81_930),
        ("digits_kd3a", CIFAR, 10, 31_805_898),
        ("mlp", (5000,), 2, 5_551_802),
        ("fasttext", TEXT, 4, 3_157_508),
        ("har_cnn", WINDOW, 6, 2_253_958),
    ],
)
def test_total_parameters(name: str, shape: tuple[int, ...], classes: int, expected: int) -> None:
    """Each network has as many parameters as the published one."""
    tokens = WORDS if name == "fasttext" else 0
    assert expected == total(build(name, shape=shape, classes=classes, tokens=tokens))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "encoder", "head"),
    [
        ("cnn", TINY, 200, 5_592_000, 102_600),
        ("resnet18", TINY, 200, 11_176_512, 102_600),
        ("alexnet_bn", PHOTO, 10, 2_472_000 + 54_550_528, 40_970),
        ("digits_stack_head", CIFAR, 10, 312_768, 17_838_602),
        ("digits", CIFAR, 10, 18_151_370 - 5_130, 5_130),
        ("digits_linear_head", CIFAR, 10, 312_768, 81_930),
        ("digits_kd3a", CIFAR, 10, 31_805_898 - 20_490, 20_490),
        ("mlp", (5000,), 2, 5_551_600, 202),
        ("fasttext", TEXT, 4, WORDS * 32 + 32 * 33, 132),
        ("har_cnn", WINDOW, 6, 21_120, 2_253_958 - 21_120),
    ],
)
def test_parameters_on_each_side(
    name: str, shape: tuple[int, ...], classes: int, encoder: int, head: int
) -> None:
    """The cut between encoder and head lies where the methods expect it."""
    tokens = WORDS if name == "fasttext" else 0
    backbone = build(name, shape=shape, classes=classes, tokens=tokens)
    assert (encoder, head) == (count(backbone.encoder), count(backbone.head))


def test_resnet18_normalisation_parameters() -> None:
    """The encoder of resnet18 has 9,600 scales and shifts in its batch normalisation."""
    encoder = build("resnet18", shape=TINY, classes=200).encoder
    expected = 9_600
    assert expected == sum(count(part) for part in encoder.modules() if isinstance(part, nn.BatchNorm2d))


def test_small_resnets_stage_by_stage() -> None:
    """Stem and blocks of the small residual networks have the published sizes."""
    encoder = build("resnet10", shape=CIFAR, classes=100).encoder
    stem = count(encoder.get_submodule("conv")) + count(encoder.get_submodule("bn"))
    stages = [count(encoder.get_submodule(f"stage{number}")) for number in (1, 2, 3, 4)]
    expected = [9_536, 73_984, 230_144, 919_040, 3_673_088]
    assert expected == [stem, *stages]


@pytest.mark.parametrize(
    ("name", "shape", "layers", "expected"),
    [
        ("cnn", TINY, ("fc",), 5_538_304),
        ("alexnet_bn", PHOTO, ("conv",), 2_472_000),
        ("alexnet_bn", PHOTO, ("fc",), 54_550_528),
        ("digits", CIFAR, ("conv",), 312_768),
        ("digits_kd3a", CIFAR, ("conv",), 312_768),
    ],
)
def test_parts_of_an_encoder(
    name: str, shape: tuple[int, ...], layers: tuple[str, ...], expected: int
) -> None:
    """Convolutions and fully connected layers, each with its normalisation, have the published sizes."""
    with torch.device("meta"):
        encoder = build(name, shape=shape, classes=10).encoder
    assert expected == sum(count(part) for own, part in encoder.named_children() if own.startswith(layers))


@pytest.mark.parametrize(
    ("name", "shape", "features"),
    [
        ("cnn", MNIST, 512),
        ("cnn", (4, 32, 40), 512),
        ("cnn", (1, 16, 16), 512),
        ("cnn", TINY, 512),
        ("resnet8", (1, 28, 28), 256),
        ("resnet8", (3, 1, 1), 256),
        ("resnet10", CIFAR, 512),
        ("resnet18", (2, 64, 64), 512),
        ("alexnet_bn", (1, 63, 63), 4096),
        ("digits", (1, 28, 28), 512),
        ("digits", (3, 4, 4), 512),
        ("digits_stack_head", CIFAR, 8192),
        ("digits_linear_head", (1, 28, 28), 6272),
        ("digits_kd3a", CIFAR, 2048),
        ("digits_kd3a", (1, 27, 30), 2048),
        ("har_cnn", WINDOW, 1664),
        ("har_cnn", (3, 28), 64),
        ("mlp", (7,), 100),
        ("mlp", (3, 8, 8), 100),
    ],
)
def test_output_shapes(name: str, shape: tuple[int, ...], features: int) -> None:
    """The encoder yields `features` numbers for each example, the head one score for each class."""
    backbone = build(name, shape=shape, classes=6)
    backbone.encoder.eval()
    backbone.head.eval()
    with torch.no_grad():
        hidden = backbone.encoder(torch.zeros(2, *shape))
        scores = backbone.head(hidden)
    assert features == backbone.features
    assert ((2, features), (2, 6)) == (tuple(hidden.shape), tuple(scores.shape))


CONV = ["Conv2d", "BatchNorm2d", "ReLU"]
FULL = ["Linear", "BatchNorm1d", "ReLU"]
POOL = ["MaxPool2d"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cnn", ["Conv2d", "ReLU", *POOL] * 2 + ["Flatten", "Linear", "ReLU"]),
        ("digits", [*CONV, *POOL] * 2 + [*CONV, "Flatten", *FULL * 2]),
        ("digits_stack_head", [*CONV, *POOL] * 2 + [*CONV, "Flatten"]),
        ("alexnet_bn", [*CONV, *POOL] * 2 + CONV * 3 + [*POOL, "AdaptiveAvgPool2d", "Flatten", *FULL * 2]),
        ("digits_kd3a", [*CONV, *POOL] * 2 + [*CONV, "Flatten", *FULL, "Dropout", *FULL]),
        ("mlp", ["Flatten", *["Linear", "ReLU"] * 3]),
    ],
)
def test_order_of_layers(name: str, expected: list[str]) -> None:
    """Normalisation, ReLU and pooling stand where the published tables have them."""
    assert expected == [
        type(layer).__name__ for layer in build(name, shape=TINY, classes=2).encoder.children()
    ]


def test_order_of_layers_in_a_deep_head() -> None:
    """The head of three layers is normalised after each but the last."""
    expected = [*FULL * 2, "Linear"]
    head = build("digits_stack_head", shape=CIFAR, classes=2).head
    assert expected == [type(layer).__name__ for layer in head.children()]


def test_where_digits_is_cut_changes_nothing_else() -> None:
    """Both cuts of the digits network compute the same function when their layers hold the same values."""
    whole = build("digits", shape=MNIST, classes=4)
    other = build("digits_stack_head", shape=MNIST, classes=4)
    values = [*whole.encoder.state_dict().values(), *whole.head.state_dict().values()]
    layers = nn.Sequential(other.encoder, other.head)
    layers.load_state_dict(dict(zip(layers.state_dict(), values, strict=True)))
    x = torch.linspace(-1, 1, 2 * 28 * 28).reshape(2, *MNIST)
    expected = whole.head.eval()(whole.encoder.eval()(x))
    torch.testing.assert_close(layers.eval()(x), expected)


def test_a_further_head_is_independent() -> None:
    """Another head has the same architecture and shares no tensor with the first."""
    backbone = build("digits_stack_head", shape=MNIST, classes=3)
    other = backbone.another_head()
    with torch.no_grad():
        other.get_parameter("out.weight").fill_(7.0)
    assert list(backbone.head.state_dict()) == list(other.state_dict())
    assert not bool((backbone.head.get_parameter("out.weight") == 7.0).any())


def test_projector_becomes_part_of_the_encoder() -> None:
    """With a projector the encoder is body then projector, of the same width, and the head stays."""
    plain = build("resnet18", shape=TINY, classes=7)
    projected = build("resnet18", shape=TINY, classes=7, projector=ProjectorShape())
    parts = ["body", "projector"]
    assert parts == [name for name, _ in projected.encoder.named_children()]
    assert count(plain.encoder) + 264_448 == count(projected.encoder)
    assert (plain.features, count(plain.head)) == (projected.features, count(projected.head))
    assert torch.Size((2, 512)) == projected.encoder(torch.zeros(2, *TINY)).shape


def test_parameter_names_are_stable() -> None:
    """Checkpoints name their tensors like this; a change would make every older one unreadable."""
    backbone = build("resnet8", shape=CIFAR, classes=10)
    ours = [name for name, _ in backbone.encoder.named_parameters()]
    first = ["conv.weight", "bn.weight", "bn.bias", "stage1.0.conv1.weight"]
    assert first == ours[:4]
    assert {"stage2.0.shortcut.conv.weight", "stage2.0.shortcut.bn.weight"} < set(ours)
    cnn = build("cnn", shape=MNIST, classes=10).encoder
    assert [f"{layer}.{kind}" for layer in ("conv1", "conv2", "fc") for kind in ("weight", "bias")] == [
        name for name, _ in cnn.named_parameters()
    ]


def test_names_can_all_be_built() -> None:
    """Every listed name makes a network, and the list has no doubles."""
    listed = names()
    assert len(set(listed)) == len(listed)
    for name in listed:
        tokens = 5 if name == "fasttext" else 0
        assert build(name, shape=SHAPES.get(name, (1, 64, 64)), classes=2, tokens=tokens).features > 0


def test_every_network_has_its_published_size_checked() -> None:
    """The table of totals above has a line for each network a run can name."""
    marks = next(mark for mark in test_total_parameters.pytestmark if mark.name == "parametrize")
    assert set(names()) == {name for name, *_ in marks.args[1]}


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("resnet-18", "did you mean 'resnet18'? known: "),
        ("CNN", "did you mean 'cnn'? known: "),
        ("alexnet", "did you mean 'alexnet_bn'? known: "),
        ("?", "what to do: known: "),
    ],
)
def test_unknown_name(wrong: str, hint: str) -> None:
    """A name nobody knows is answered with the nearest known one and with all of them."""
    with pytest.raises(SettingError) as caught:
        build(wrong, shape=MNIST, classes=2)
    assert f"there is no backbone '{wrong}'" == caught.value.seen
    assert str(caught.value).endswith(hint + ", ".join(names()))


@pytest.mark.parametrize(
    ("name", "shape", "seen", "expected"),
    [
        ("cnn", (1, 8, 8), "cnn got images of 8x8 pixels", "at least 16x16"),
        ("cnn", (1, 28, 15), "cnn got images of 28x15 pixels", "at least 16x16"),
        ("digits", (1, 3, 3), "digits got images of 3x3 pixels", "at least 4x4"),
        ("alexnet_bn", (3, 62, 62), "alexnet_bn got images of 62x62 pixels", "at least 63x63"),
        ("resnet18", (561,), "resnet18 got examples of shape (561,)", "(channels, height, width)"),
        ("resnet8", (0, 8, 8), "resnet8 got examples of shape (0, 8, 8)", "each 1 or more"),
        ("mlp", (), "mlp got examples of shape ()", "one size or several"),
        ("mlp", (4, 0), "mlp got examples of shape (4, 0)", "each 1 or more"),
    ],
)
def test_unfit_shape(name: str, shape: tuple[int, ...], seen: str, expected: str) -> None:
    """A shape the network cannot take is refused in words: seen, expected, what to do."""
    with pytest.raises(SettingError) as caught:
        build(name, shape=shape, classes=2)
    assert f"the backbone {seen}" == caught.value.seen
    assert expected in caught.value.expected
    assert caught.value.advice


def test_too_few_classes() -> None:
    """One class leaves nothing to tell apart, and is refused."""
    with pytest.raises(SettingError, match="cnn got 1 classes\n  expected: 2 or more\n  what to do: check"):
        build("cnn", shape=MNIST, classes=1)


@pytest.mark.parametrize("projector", [None, ProjectorShape()], ids=["plain", "with projector"])
def test_a_network_says_what_it_is_called(projector: ProjectorShape | None) -> None:
    """Methods whose defaults differ by network ask for it."""
    assert "mlp" == build("mlp", shape=(4,), classes=2, projector=projector).name
