"""What samples are, as it is typed."""

from __future__ import annotations

import pytest

from pfl_common.spec.sample_form import Form, read_form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", Form()),
        ("image", Form("image")),
        ("3,32,32", Form(None, (3, 32, 32))),
        ("array:2", Form("array", (2,))),
        ("windows:6,128", Form("windows", (6, 128))),
    ],
)
def test_a_form_and_its_text(text: str, form: Form) -> None:
    """Kind, shape or both, and back."""
    assert form == read_form(text)
    assert text == str(form)


@pytest.mark.parametrize("text", ["pictures", "image:", ":3", "image3", "0", "3,,4", "3,-1", "1" * 12, "3 4"])
def test_what_is_no_form(text: str) -> None:
    """The error lists the kinds and shows a shape."""
    with pytest.raises(ValueError, match=r"a kind .image, array.* a shape .3,32,32. or both"):
        read_form(text)
