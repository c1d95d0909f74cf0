"""What sites agree on: names decide over indices, and a site that does not fit is told how."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pfl_common.errors import DataError, Refused
from pfl_common.spec.run import Description, Model, Values
from pfl_server.decisions.input_choice import Wish
from pfl_server.decisions.model_choice import agree, default_backbone, fits, odd_ones


def image(size: int, *classes: str, channels: int = 3) -> Description:
    return Description((channels, size, size), classes)


def table(width: int, *classes: str) -> Description:
    return Description((width,), classes, kind="array", values="numbers")


@pytest.mark.parametrize(
    "sizes, channels, wish, expected",
    [
        ((32, 32, 28), (3, 3, 3), 0, (3, 32, 32)),
        ((28, 32), (3, 3), 0, (3, 28, 28)),
        ((28, 28), (1, 3), 0, (3, 28, 28)),
        ((28, 64, 28), (1, 1, 1), 0, (1, 28, 28)),
        ((28, 32), (1, 1), 16, (1, 16, 16)),
    ],
    ids=["most common", "then smaller", "colour wins", "most common though smaller", "as wished"],
)
def test_the_size_of_images(
    sizes: tuple[int, ...], channels: tuple[int, ...], wish: int, expected: tuple[int, ...]
) -> None:
    """Images are resized to one size: the wished one, else the most common, else the smaller."""
    sites = {
        f"s{n}": image(size, "a", "b", channels=depth)
        for n, (size, depth) in enumerate(zip(sizes, channels, strict=True))
    }
    assert expected == agree(sites, Wish(image_size=wish)).shape


def test_tables_cannot_be_resized() -> None:
    """Sites with different columns cannot train one model; the error shows whose are which."""
    with pytest.raises(DataError, match=r"a: \(4,\), b: \(5,\)"):
        agree({"b": table(5, "x", "y"), "a": table(4, "x", "y")}, Wish())


def floats(values: Values, high: float, *, samples: int = 1) -> Description:
    return replace(image(32, "a", "b"), values=values, high=high, samples=samples)


@pytest.mark.parametrize(
    ("odd", "seen", "todo"),
    [
        (
            table(4, "a"),
            r"odd has numbers of shape \(4,\) that are no pictures; expected: pictures of 8 bits",
            "what to do: check --data",
        ),
        (
            Description((32, 32, 3), ("a",), kind="array", values="numbers"),
            "that are no pictures",
            "channels_last",
        ),
        (
            floats("unit", 1.0),
            r"odd has pictures of floats from 0 to 1, 0\.\.1; expected: pictures of 8 bits",
            "data.json",
        ),
        (floats("byte_floats", 255.0), "odd has pictures of floats from 0 to 255", "data.json"),
        (floats("signed", 3.0), "odd has pictures of other floats", "data.json"),
    ],
)
def test_the_odd_one_is_told_why(odd: Description, seen: str, todo: str) -> None:
    """What it has, what most have, what to do; nobody else is told anything."""
    found = odd_ones({"odd": odd, "b": image(32, "a"), "c": image(600, "z", channels=1)})
    assert ["odd"] == list(found)
    assert re.search(seen, found["odd"])
    assert todo in found["odd"]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((7,), None),
        ((28, 28), '{"kind": "image"}'),
        ((3, 32, 32), '{"kind": "image", "layout": "channels_first"}'),
        ((32, 32, 1), '{"kind": "image", "layout": "channels_last"}'),
        ((12, 32, 32), None),
        ((1, 8, 8, 3), None),
    ],
)
def test_pictures_are_spoken_of_where_there_can_be_some(shape: tuple[int, ...], said: str | None) -> None:
    """Nobody is told to call seven numbers a picture."""
    odd = Description(shape, ("a",), kind="array", values="numbers")
    todo = odd_ones({"odd": odd, "b": image(32, "a"), "c": image(32, "a")})["odd"].partition("what to do: ")[
        2
    ]
    whole = (
        f"if they are pictures, say so in data.json: {said}; else check --data" if said else "check --data"
    )
    assert whole == todo


def test_eight_and_sixteen_bits_go_together() -> None:
    """Each has a full scale of its own."""
    wide = replace(image(32, "a", "b"), values="wide", high=4095)
    assert {} == odd_ones({"a": wide, "b": image(32, "a", "b")})


def test_tables_of_another_width_and_of_another_unit() -> None:
    """Columns that others do not have, and numbers a thousand times as large."""
    tables = {name: replace(table(4, "a", "b"), low=-1, high=9) for name in "abc"}
    assert {} == odd_ones(tables | {"d": replace(tables["a"], high=8000)})
    assert "(4,)" in odd_ones(tables | {"d": table(5, "a")})["d"]
    thousandfold = odd_ones(tables | {"d": replace(tables["a"], high=9000)})["d"]
    assert re.search(r"d has .*9000; expected: .*\b9\b", thousandfold)
    assert "0.009" in odd_ones(tables | {"d": replace(tables["a"], low=0, high=0.009)})["d"]


def test_of_two_forms_the_one_with_more_samples_is_the_federations() -> None:
    """In whichever order they came; without samples the first name decides."""
    pair = {"b": floats("unit", 1, samples=9), "a": floats("bytes", 255, samples=8)}
    assert ["a"] == list(odd_ones(pair)) == list(odd_ones(dict(reversed(pair.items()))))
    assert {} == odd_ones({})


def test_a_run_of_odd_ones_is_not_begun() -> None:
    """Who gathers refuses them before; who does not is stopped here, with the site's name."""
    with pytest.raises(DataError, match="b has pictures of floats from 0 to 1"):
        agree({"a": floats("bytes", 255, samples=9), "b": floats("unit", 1)}, Wish())


def test_one_class_in_the_whole_federation() -> None:
    """There is nothing to tell apart: said before the run, with what to do."""
    with pytest.raises(DataError, match="1 class") as error:
        agree({"a": image(32, "cat"), "b": image(32, "cat")}, Wish())
    assert "two classes" in str(error.value)


def test_one_class_at_one_site_is_no_error() -> None:
    """The others make up for it."""
    assert ("cat", "dog") == agree({"a": image(32, "cat"), "b": image(32, "dog")}, Wish()).classes


def test_images_and_tables_do_not_mix() -> None:
    """Different kinds of data are an error that says who has which."""
    with pytest.raises(DataError, match="a: image, b: array"):
        agree({"a": image(32, "x", "y"), "b": table(4, "x", "y")}, Wish())


@pytest.mark.parametrize(
    "shape, expected",
    [
        ((3, 32, 32), "resnet8"),
        ((1, 28, 28), "resnet8"),
        ((3, 64, 64), "resnet8"),
        ((3, 65, 65), "resnet18"),
        ((3, 8, 8), "mlp"),
        ((9, 128), "mlp"),
        ((4,), "mlp"),
    ],
)
def test_the_backbone_when_none_is_named(shape: tuple[int, ...], expected: str) -> None:
    """By the kind and size of the data."""
    assert expected == default_backbone(shape)


def test_wishes_win() -> None:
    """A named backbone and the projector go into the model as they are."""
    model = agree({"a": image(32, "x", "y")}, Wish("resnet8", 0, True))
    assert ("resnet8", True) == (model.backbone, model.encoder_projector)


RUN = Model("cnn", (3, 32, 32), ("cat", "dog"))


@pytest.mark.parametrize(
    "description", [image(28, "dog", channels=1), image(32, "dog", "cat"), image(512, "cat")]
)
def test_a_late_site_that_fits(description: Description) -> None:
    """Some of the classes, in any order; images of any size, which are resized."""
    fits(description, RUN, "late")


@pytest.mark.parametrize(
    "code, words, description",
    [
        ("classes", "late has .*: wolf", image(32, "cat", "wolf")),
        ("shape", r"shape \(4,\)", table(4, "cat", "dog")),
    ],
)
def test_a_late_site_that_does_not_fit(code: str, words: str, description: Description) -> None:
    """It is refused with what was seen and what was expected."""
    with pytest.raises(Refused, match=words) as refused:
        fits(description, RUN, "late")
    assert code == refused.value.code


def test_a_table_of_the_run() -> None:
    """Tables fit when their shape is the run's."""
    fits(table(4, "cat"), Model("mlp", (4,), ("cat", "dog")), "late")
