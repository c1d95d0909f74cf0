"""Names of tensors that stay, whatever branch a method puts them in."""

from __future__ import annotations

import pytest

from pfl_common.spec.personal_names import find_personal, meaning

KNOWN = frozenset({"encoder.w", "encoder.head.weight", "head.weight", "personal.encoder.w"})
PERSONAL = frozenset({"head.weight", "personal.encoder.w"})


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("sum.encoder.w", "encoder.w"),
        ("weight.head.weight", "head.weight"),
        ("show.model.head.weight", "head.weight"),
        ("show.a.b.personal.encoder.w", "personal.encoder.w"),
        ("sum.encoder.head.weight", "encoder.head.weight"),
        ("sum.prototypes", ""),
        ("head", ""),
    ],
)
def test_a_name_means_the_longest_that_it_ends_with(name: str, means: str) -> None:
    """A layer within the encoder may be called like the head: its whole name decides."""
    assert means == meaning(name, KNOWN)


def test_what_stays_is_found_in_any_branch() -> None:
    """And nothing else is."""
    sent = ["sum.encoder.w", "sum.encoder.head.weight", "weight.head.weight", "show.v.personal.encoder.w"]
    found = find_personal(sent, personal=PERSONAL, known=KNOWN)
    assert ("weight.head.weight", "show.v.personal.encoder.w") == found
