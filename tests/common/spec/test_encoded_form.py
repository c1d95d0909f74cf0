"""Sizes of encoded tensors, worked by hand, and words that name no form."""

from __future__ import annotations

import pytest

from pfl_common.spec.encoded_form import Form, read_form

SIZES = {
    "bf16": {1: 2, 300: 600},
    "bf16-change": {1: 2, 300: 600},
    # A scale of four bytes for each 256 numbers begun.
    "int8-change": {1: 5, 256: 260, 257: 265, 512: 520},
    # 5 % of 4,096 are 204.8: 205 places of two bytes and as many values; of 100 numbers five, of 3 one.
    "topk-change/0.05": {4096: 820, 4196: 840, 100: 20, 3: 4},
    "topk-change/0.5": {4096: 8192, 7: 16},
}


@pytest.mark.parametrize("text", SIZES)
def test_sizes(text: str) -> None:
    """A tensor's bytes follow from its form and its number of values alone."""
    form = read_form(text)
    assert form is not None
    assert text == form.text
    assert SIZES[text] == {count: form.size(count) for count in SIZES[text]}
    assert 0 == form.size(0)


@pytest.mark.parametrize(
    "text",
    [
        "float32",
        "int8",
        "int8-change/0.5",
        "topk-change",
        "topk-change/0.0",
        "topk-change/0.51",
        "topk-change/0.050",
        "topk-change/0.0000001",
        "topk-change/nan",
        "topk-change/1e-3",
        "bf16-change ",
        "BF16",
        "",
    ],
)
def test_no_form(text: str) -> None:
    """One way to write each, and no share of nothing or of more than half."""
    assert read_form(text) is None


def test_a_share_is_not_rounded_up_by_its_digits() -> None:
    """0.05 has no exact double: times 4,100 it is a little more than 205."""
    assert 205 == Form("topk", share=0.05).taken(4100)


def test_what_loses_much_keeps_the_rest() -> None:
    """bf16 loses a 256th of a change at most, the others up to all of it."""
    assert [False, True, True] == [
        Form(kind, share=0.1 * (kind == "topk")).keeps_rest for kind in ("bf16", "int8", "topk")
    ]
