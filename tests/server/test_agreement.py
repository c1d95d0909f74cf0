"""What sites agree on: names decide over indices, and whoever does not fit is told how."""

from __future__ import annotations

import pytest

from pfl_common.errors import DataError, Refused
from pfl_common.run import Description, Model
from pfl_server.agreement import Wish, agree, common_classes, default_backbone, fits


def image(size: int, *classes: str, channels: int = 3) -> Description:
    return Description((channels, size, size), classes)


def table(width: int, *classes: str) -> Description:
    return Description((width,), classes, kind="array")


def test_equal_lists_keep_their_order() -> None:
    """ "zero, one, two" stays as it is when all say it so."""
    names = ("zero", "one", "two")
    assert names == common_classes({"a": image(32, *names), "b": image(32, *names)})


def test_different_lists_become_one_sorted_by_name() -> None:
    """A class has the same index at every site, whichever it lacks and in whatever order it names them."""
    sites = {"a": image(32, "dog", "cat"), "b": image(32, "cat", "dog"), "c": image(32, "ant")}
    assert ("ant", "cat", "dog") == common_classes(sites)
    assert common_classes(sites) == common_classes(dict(reversed(sites.items())))


@pytest.mark.parametrize(
    "sizes, channels, wish, expected",
    [
        ((32, 32, 28), (3, 3, 3), 0, (3, 32, 32)),
        ((28, 32), (3, 3), 0, (3, 32, 32)),
        ((28, 28), (1, 3), 0, (3, 28, 28)),
        ((28, 64, 28), (1, 1, 1), 0, (1, 28, 28)),
        ((28, 32), (1, 1), 16, (1, 16, 16)),
    ],
    ids=["most common", "then larger", "colour wins", "most common though smaller", "as wished"],
)
def test_the_size_of_images(
    sizes: tuple[int, ...], channels: tuple[int, ...], wish: int, expected: tuple[int, ...]
) -> None:
    """Images are resized to one size: the wished one, else the most common, else the larger."""
    sites = {
        f"s{n}": image(size, "a", "b", channels=depth)
        for n, (size, depth) in enumerate(zip(sizes, channels, strict=True))
    }
    assert expected == agree(sites, Wish(image_size=wish)).shape


def test_tables_cannot_be_resized() -> None:
    """Sites with different columns cannot train one model; the error shows whose are which."""
    with pytest.raises(DataError, match=r"a: \(4,\), b: \(5,\)"):
        agree({"b": table(5, "x", "y"), "a": table(4, "x", "y")}, Wish())


def test_one_class_in_the_whole_federation() -> None:
    """There is nothing to tell apart: said before the run, with what to do."""
    with pytest.raises(DataError, match="the whole federation knows 1 class") as error:
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
        ((3, 32, 32), "cnn"),
        ((1, 28, 28), "cnn"),
        ((3, 64, 64), "cnn"),
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
        ("classes", "late has classes the run does not know: wolf", image(32, "cat", "wolf")),
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
