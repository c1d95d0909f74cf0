"""How pictures were prepared for weights becomes the run's: size, mean and deviation, where it can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pfl_common.spec.run import Description, Model
from pfl_server.decisions import input_choice, weights_preprocessing
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree
from pfl_server.decisions.weights_preprocessing import Prepared, standardise_as

IMAGENET = Prepared(
    "ResNet18_Weights.IMAGENET1K_V1", (224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
)
COLOUR = Model("resnet18", (3, 224, 224), ("a", "b"), kind="image")
PICTURES = Description((3, 40, 48), ("cat", "dog"), 5, sizes=((40, 48, 5),), high=255)


@pytest.mark.parametrize(
    "model",
    [
        COLOUR,
        replace(COLOUR, values="wide", low=0.0, high=4095.0),
        replace(COLOUR, values="unit", high=1.0),
        replace(COLOUR, values="signed", low=-1.0, high=1.0),
        replace(COLOUR, values="signed", per_picture=True),
    ],
)
def test_each_channel_has_its_own(model: Model) -> None:
    """In the specification, and in words."""
    chosen = standardise_as(IMAGENET, model)
    assert (IMAGENET.mean, IMAGENET.deviation) == (chosen.pixel_mean, chosen.pixel_deviation)
    assert "0.485, 0.456, 0.406" in weights_preprocessing.explain(IMAGENET, chosen)["pixels"]


def test_grey_pictures_have_the_mean_of_colours() -> None:
    """A network of torchvision's sees one channel as all three."""
    chosen = standardise_as(IMAGENET, replace(COLOUR, shape=(1, 224, 224)))
    assert ((pytest.approx(0.449),), (pytest.approx(0.226),)) == (chosen.pixel_mean, chosen.pixel_deviation)
    assert "mean over its channels" in weights_preprocessing.explain(IMAGENET, chosen)["pixels"]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (replace(COLOUR, values="signed"), "--pixel-range"),
        (replace(COLOUR, values="signed", mean=(0.0,), deviation=(1.0,)), "--pixel-range"),
        (replace(COLOUR, shape=(4, 8, 8)), "4 channels"),
    ],
)
def test_what_cannot_be_is_said(model: Model, why: str) -> None:
    """Values of another range, channels that the weights know nothing of."""
    assert model == standardise_as(IMAGENET, model)
    assert why in weights_preprocessing.explain(IMAGENET, model)["pixels"]


@pytest.mark.parametrize(
    "model", [Model("mlp", (7,), ("a", "b"), kind="table"), Model("har_cnn", (3, 50), ("a", "b"))]
)
def test_other_data_are_not_touched(model: Model) -> None:
    """Nor is there anything to say."""
    assert model == standardise_as(IMAGENET, model)
    assert {} == weights_preprocessing.explain(IMAGENET, model)


def test_weights_of_which_nothing_is_known() -> None:
    """Pictures stay as they are."""
    assert COLOUR == standardise_as(None, COLOUR)
    assert COLOUR == standardise_as(Prepared("w.pth", (8, 8)), COLOUR)


@pytest.mark.parametrize(
    ("wish", "size", "words"),
    [
        (Wish(prepared=IMAGENET), (224, 224), "as for ResNet18_Weights.IMAGENET1K_V1"),
        (Wish(prepared=IMAGENET, image_size=64), (64, 64), "as --image-size says"),
        (Wish(), (40, 48), "the most common size"),
    ],
)
def test_the_size_is_the_weights_unless_one_is_named(wish: Wish, size: tuple[int, int], words: str) -> None:
    """Pictures of any size are brought to it."""
    model = agree({"a": PICTURES}, wish)
    assert (3, *size) == model.shape
    told = input_choice.explain({"a": PICTURES}, wish, shape=model.shape, features=0)
    assert words in told["image size"]
