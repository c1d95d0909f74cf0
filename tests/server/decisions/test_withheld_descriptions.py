"""Sites that withhold something at joining: what a run can do without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.hashed_names import hash_name
from pfl_common.spec.run import Description
from pfl_server.decisions.input_choice import Range, Wish, choose_range
from pfl_server.decisions.picture_size import count_sizes
from pfl_server.decisions.withheld_descriptions import hides_sizes, resolve

OPEN = Description((1, 8, 8), ("cat", "dog"), 9, sizes=((8, 8, 9),))
BARE = replace(OPEN, shape=(1, 1, 1), sizes=())
HASHED = replace(OPEN, classes=(hash_name("dog"), hash_name("cat")))


def test_names_are_put_in_place_of_their_hashes() -> None:
    """By the operator's list or the run's; names told as they are stay."""
    assert ("dog", "cat") == resolve("a", HASHED, classes=("cat", "dog", "owl"), image_size=False).classes
    assert OPEN == resolve("a", OPEN, classes=(), image_size=False)
    silent = replace(OPEN, classes=())
    assert silent == resolve("a", silent, classes=("cat", "dog"), image_size=False)


@pytest.mark.parametrize(
    ("description", "classes", "code", "words"),
    [
        (HASHED, (), "classes", "does not tell the names of its classes.*--classes"),
        (replace(OPEN, classes=()), (), "classes", "does not tell the names of its classes.*--classes"),
        (HASHED, ("cat", "owl"), "classes", "1 of the 2 classes that a tells as hashes"),
        (BARE, ("cat", "dog"), "shape", "does not tell how large its pictures are.*--image-size"),
    ],
)
def test_what_a_run_cannot_do_without_is_said(
    description: Description, classes: tuple[str, ...], code: str, words: str
) -> None:
    """To the site that withholds it, alone, with what to do at either end."""
    with pytest.raises(Refused, match=words) as refused:
        resolve("a", description, classes=classes, image_size=False)
    assert code == refused.value.code


def test_sizes_that_are_not_told_are_not_counted() -> None:
    """A picture of one pixel is none; one that is told is."""
    assert hides_sizes(BARE)
    assert not hides_sizes(replace(BARE, sizes=((1, 1, 9),)))
    assert {(8, 8): 9} == dict(count_sizes({"a": OPEN, "b": BARE}))
    assert BARE == resolve("a", BARE, classes=("cat", "dog"), image_size=True)


def test_ranges_that_are_not_told_are_left_out() -> None:
    """Of the others' the widest counts; where nobody tells one, all that 16 bits hold."""
    told, silent = (
        replace(OPEN, values="wide", low=low, high=high) for low, high in ((5.0, 900.0), (0.0, 0.0))
    )
    assert Range(5.0, 900.0) == choose_range({"a": told, "b": silent}, Wish())
    assert Range(0.0, 65535) == choose_range({"b": silent}, Wish())
