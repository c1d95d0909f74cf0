"""Arrays and their archives with headers that claim other shapes and types than there are numbers for."""

from __future__ import annotations

import io
import zipfile
from typing import Any  # an array's header is made of whatever one likes

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.fuzz import odd
from tests.fuzz.shape import Shape, shape

_TYPES = st.sampled_from(
    [
        "|u1",
        "<i8",
        "<f4",
        ">f8",
        "<f2",
        "|b1",
        "<U3",
        "|S4",
        "|O",
        "<c8",
        "<M8[s]",
        "|V8",
        "<m8",
        "x",
        "<i3",
        "|S0",
    ]
)
_SHAPES = st.one_of(
    st.sampled_from([(4,), (4, 8, 8), (4, 8, 8, 1), (4, 8, 8, 3), (0, 4), (4, 0), (), (4, 1), (1, 4, 8, 8)]),
    st.lists(st.integers(0, 9) | odd.numbers.filter(lambda number: number < 2**70), max_size=5).map(tuple),
    st.just((1,) * 40),
)
_RAW = odd.one_of(
    (
        *(
            "",
            "{}",
            "[]",
            "{'descr': '|u1'}",
            "{" * 99,
            "(" * 4000,
            "9" * 9000,
            "__import__('os').system('true')",
        ),
        "{'descr': [('a', '<f4'), ('b', '|O')], 'shape': (4,)}",
        "{'descr': '<f4', 'fortran_order': 'yes', 'shape': [4], 'more': 1}",
    )
)


@st.composite
def _arrays(draw: DrawFn) -> bytes:
    """An array whose header says what it likes, and numbers for it or not."""
    dtype, sides = draw(_TYPES), draw(_SHAPES)
    said = {"descr": dtype, "fortran_order": draw(st.booleans()), "shape": sides}
    text = draw(_RAW) if not draw(st.integers(0, 5)) else repr(said)
    numbers = b"\1" * draw(st.just(min(4096, _size(dtype, sides))) | st.integers(0, 300))
    version, width = draw(st.sampled_from([(1, 2), (1, 2), (1, 2), (2, 4), (3, 4), (9, 2)]))
    header = text.encode() + b"\n"
    length = len(header) if draw(st.integers(0, 5)) else draw(st.sampled_from([0, 1, 65_535, 2**16 - 1]))
    return b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(width, "little") + header + numbers


def _size(dtype: str, sides: tuple[int, ...]) -> int:
    try:
        count = np.dtype(dtype).itemsize
    except TypeError:
        count = 1
    for side in sides:
        count *= max(0, side)
    return count


def _plain(array: Any) -> bytes:
    stored = io.BytesIO()
    np.save(stored, array)
    return stored.getvalue()


_LABELS = st.sampled_from(
    [
        np.arange(4) % 2,
        np.arange(4) % 2 == 1,
        np.array([0, 1, 2**62, 1]),
        np.array([0, 1, 10**8, 1]),
        np.array([0, -1, 1, 0]),
        np.array([0.5, 1, np.nan, np.inf]),
        np.arange(5),
        np.zeros((4, 1), int),
        np.array(["a", "b", "a", "b"]),
        np.array([0, 1, 2**63, 1], np.uint64),
        np.arange(4, dtype=np.int8) % 2,
    ]
).map(_plain)
_SOUND_LABELS = _plain(np.arange(4) % 2)
_SAMPLES = st.sampled_from(
    [
        np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8),
        np.arange(4 * 8 * 8 * 3, dtype=np.float32).reshape(4, 8, 8, 3) / 768,
        np.full((4, 8, 8), np.nan, np.float32),
        np.full((4, 3), np.inf),
        np.full((4, 8, 8, 3), 1e300),
        np.arange(4 * 6, dtype=np.float64).reshape(4, 6),
        np.asfortranarray(np.arange(4 * 6).reshape(4, 6)),
        np.full((4, 6), -(2**63)),
        np.zeros((4, 3, 300, 1), np.uint16),
        np.full((4, 9), 2**31),
    ]
).map(_plain)


@st.composite
def _archives(draw: DrawFn) -> bytes:
    """An archive with the arrays it should have, others, or the same twice; most often but one are sound."""
    members: dict[str, bytes | None] = {"x.npy": draw(_SAMPLES), "y.npy": _SOUND_LABELS}
    if draw(st.integers(0, 2)):
        changed = draw(
            st.sampled_from(["x.npy", "x.npy", "y.npy", "vocabulary.npy", "z.npy", "../x.npy", "x", "X.npy"])
        )
        members[changed] = draw(_SAMPLES | _LABELS | _arrays() | st.none())
    else:
        members = {name: draw(_SAMPLES | _LABELS | _arrays()) for name in members}
    stored = io.BytesIO()
    packing = draw(st.sampled_from([*[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED] * 4, zipfile.ZIP_LZMA]))
    held = {name: content for name, content in members.items() if content is not None}
    with zipfile.ZipFile(stored, "w", packing) as archive:
        for name, content in held.items():
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    return _lie(draw, stored.getvalue(), b"PK\1\2")


def _lie(draw: DrawFn, content: bytes, directory: bytes) -> bytes:
    """Change a number of the archive's own lists: flags, packing, sizes, names' lengths, places."""
    at = content.rfind(directory)
    if at < 0 or draw(st.integers(0, 4)):
        return content
    place = at + draw(st.sampled_from([4, 8, 10, 16, 20, 24, 28, 30, 32, 34, 38, 42]))
    number = draw(st.sampled_from([0, 1, 9, 12, 93, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]))
    width = 2 if number <= 0xFFFF else 4
    return content[:place] + number.to_bytes(width, "little") + content[place + width :]


@shape("npy")
def build_array() -> Shape:
    """A single array."""
    return _arrays() | _SAMPLES | _LABELS


@shape("npz")
def build_archive() -> Shape:
    """Samples and their classes."""
    return _archives()
