"""Frames in every order but their own, and wraps that were cut, lengthened or made of other keys."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from pfl_common import sealing
from pfl_common.sealing.frame_format import TAG
from tests.common.sealing.parcels import COORDINATOR, SITE
from tests.fuzz import odd
from tests.fuzz.shape import Shape, shape
from tests.fuzz.targets.envelopes import FRAMES, parcel

_STEPS = st.tuples(
    st.integers(0, FRAMES - 1), st.sampled_from([0, 0, 0, 1, 2, 3, 4]), st.sampled_from([0, 1, 128, 255])
)
_RIGHT = [(place, 0, 0) for place in range(FRAMES)]


@shape("frame_order")
def build_order() -> Shape:
    """A recipe, most often the right one but for a step."""
    near = st.permutations(_RIGHT).flatmap(_change_one)
    recipes = st.lists(_STEPS, max_size=FRAMES + 2) | near | st.just(_RIGHT)
    return st.tuples(st.integers(0, 1), recipes).map(_write)


@st.composite
def _change_one(draw: DrawFn, steps: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    place = draw(st.integers(0, len(steps) - 1))
    return [*steps[:place], *draw(st.lists(_STEPS, max_size=2)), *steps[place + draw(st.integers(0, 1)) :]]


def _write(recipe: tuple[int, list[tuple[int, int, int]]]) -> bytes:
    way, steps = recipe
    return bytes([way, *(number for step in steps for number in step)])


@shape("frames")
def build_frame() -> Shape:
    """One frame: cut anywhere, lengthened, its tag at the other end, twice."""
    content = parcel().content
    places = st.integers(0, len(content))
    return st.one_of(
        places.map(lambda at: content[:at]),
        places.map(lambda at: content[at:]),
        st.binary(max_size=40).map(lambda more: content + more),
        places.map(lambda at: content[:at] + content[at + 1 :]),
        odd.one_of([content * 2, content[-TAG:] + content[:-TAG], content[-TAG:], content]),
    )


@shape("wrap")
def build_wrap() -> Shape:
    """A wrap of the same key for others, or for the same under another header; or of the right one a part."""
    right, key = parcel().wrapped, parcel().key
    header = parcel().vouched.binding.hash
    other = sealing.wrap(key, COORDINATOR.card, header_hash=header)
    elsewhere = sealing.wrap(key, SITE.card, header_hash=bytes(32))
    cut = st.integers(0, len(right)).map(lambda at: right[:at])
    changed = st.tuples(st.integers(0, len(right) - 1), st.integers(1, 255)).map(
        lambda one: right[: one[0]] + bytes([right[one[0]] ^ one[1]]) + right[one[0] + 1 :]
    )
    mixed = st.integers(0, len(right)).map(lambda at: right[:at] + other[at:])
    return odd.one_of([right, other, elsewhere, right + b"\0", b""]) | cut | changed | mixed
