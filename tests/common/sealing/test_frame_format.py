"""Sizes, nonces and headers of sealed bytes, by hand."""

from __future__ import annotations

import pytest

from pfl_common.sealing.frame_format import (
    FRAME,
    LARGEST_HEADER,
    Tampered,
    bind,
    count_frames,
    plain_size,
    sealed_size,
)


@pytest.mark.parametrize(
    ("plain", "frames"),
    [(0, 1), (1, 1), (FRAME, 1), (FRAME + 1, 2), (2 * FRAME, 2), (FRAME << 32, 1 << 32)],
)
def test_each_frame_costs_one_tag(plain: int, frames: int) -> None:
    """Nothing at all is one empty frame; a full frame needs no other after it."""
    assert (frames, plain + 16 * frames) == (count_frames(plain), sealed_size(plain))
    assert plain == plain_size(plain + 16 * frames)


@pytest.mark.parametrize("sealed", [0, 15, FRAME + 16 + 1, FRAME + 16 + 15, FRAME + 16 + 16])
def test_a_size_that_sealing_never_gives(sealed: int) -> None:
    """Less than a tag, or a second frame that is less than its tag or empty."""
    with pytest.raises(Tampered) as refused:
        plain_size(sealed)
    assert "size" == refused.value.code


def test_more_frames_than_four_bytes_number() -> None:
    """A frame past them would take the nonce of another."""
    with pytest.raises(Tampered) as refused:
        count_frames((FRAME << 32) + 1)
    assert "size" == refused.value.code


@pytest.mark.parametrize(
    "header",
    [
        b'{"direction": "up","sender":"a"}',
        b'{"sender":"a","direction":"up"}',
        b'{"direction":"up","direction":"up","sender":"a"}',
        b'{"direction":"sideways","sender":"a"}',
        b'{"direction":"up","sender":1}',
        b'{"direction":"up"}',
        b'["up"]',
        b"\xff",
        b'{"direction":"up","sender":"' + b"a" * LARGEST_HEADER + b'"}',
    ],
)
def test_a_header_has_one_spelling(header: bytes) -> None:
    """A blank, another order, a name twice: two texts may not mean one header."""
    assert "up" == bind(b'{"direction":"up","sender":"a"}').direction
    with pytest.raises(Tampered) as refused:
        bind(header)
    assert "header" == refused.value.code
