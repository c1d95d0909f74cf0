"""A form that the operator says: a site with another one is refused alone, in words."""

from __future__ import annotations

import pytest

from pfl_common.errors import Refused
from pfl_common.spec.run import Description
from pfl_common.spec.sample_form import read_form
from pfl_server.decisions.pinned_form import check_form, tell_form

PICTURE = Description((3, 40, 48), ("cat", "dog"), 10, high=255.0)
NUMBERS = Description((2,), ("cat", "dog"), 10, "array", values="numbers")
TABLE = Description((2,), ("cat", "dog"), 10, "table", values="numbers")
TEXT = Description((200,), ("bad", "good"), 9, "tokens", values="numbers", numbering="words", words=("a",))


@pytest.mark.parametrize(
    ("own", "pinned", "fits"),
    [
        (PICTURE, "", True),
        (PICTURE, "image", True),
        (PICTURE, "3,32,32", True),
        (PICTURE, "image:1,8,8", True),
        (PICTURE, "2", False),
        (PICTURE, "array", False),
        (NUMBERS, "2", True),
        (NUMBERS, "array:2", True),
        (NUMBERS, "table:2", True),
        (NUMBERS, "image", False),
        (NUMBERS, "3", False),
        (TABLE, "array", True),
        (TEXT, "tokens", True),
        (TEXT, "tokens:64", True),
        (TEXT, "windows", False),
    ],
)
def test_who_fits(own: Description, pinned: str, fits: bool) -> None:
    """Pictures and texts of any size go together, and a table is an array of rows."""
    if fits:
        check_form("a", own, read_form(pinned))
        return
    with pytest.raises(Refused, match=f"expected: {pinned}, as --shape says") as refused:
        check_form("a", own, read_form(pinned))
    assert "shape" == refused.value.code


def test_what_an_operator_would_say() -> None:
    """A site's own form, as `--shape` takes it."""
    said = [tell_form(one) for one in (PICTURE, NUMBERS, TABLE, TEXT)]
    assert ["image", "array:2", "table:2", "tokens"] == said
    for own, form in zip((PICTURE, NUMBERS, TABLE, TEXT), said, strict=True):
        check_form("a", own, read_form(form))
