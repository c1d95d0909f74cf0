"""Files of tensors: by their headers they overlap, lie outside, run backwards, or have shapes without numbers."""

from __future__ import annotations

import json
from functools import cache
from typing import Any  # JSON has no narrower type

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.targets.weights import served

_WIDTHS = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "U8": 1,
    "BOOL": 1,
    "I16": 2,
    "F8_E4M3": 1,
}
_LENGTHS = st.sampled_from([0, -1, 1, 8, 2**31, 2**63 - 1, -(2**63)])
"""By how much the header's length is wrong."""


@st.composite
def _sound(draw: DrawFn) -> tuple[dict[str, Any], bytes]:
    """A header, and as many numbers as it names."""
    said, at = dict[str, Any](), 0
    for name in draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=4)):
        dtype = draw(st.sampled_from(sorted(_WIDTHS)))
        sides = draw(st.lists(st.integers(0, 3), max_size=3))
        size = _WIDTHS[dtype]
        for side in sides:
            size *= side
        said[name] = {"dtype": dtype, "shape": sides, "data_offsets": [at, at + size]}
        at += size
    if draw(st.booleans()):
        said["__metadata__"] = {"pfl": draw(odd.words)}
    return said, bytes(place % 64 for place in range(at))


@st.composite
def _changed(draw: DrawFn) -> bytes:
    said, numbers = draw(_sound())
    for name in draw(st.lists(st.sampled_from(sorted(said)), max_size=2, unique=True)) if said else ():
        entry = said[name]
        if "data_offsets" in entry:
            begin, end = entry["data_offsets"]
            moved = draw(st.sampled_from([-end - 1, -8, -1, 0, 1, 8, 2**32, 2**63]))
            ways = [[begin + moved, end + moved], [begin, end + moved], [end, begin], [begin, end, end], []]
            said[name] = {**entry, "data_offsets": draw(st.sampled_from(ways))}
    whole = draw(odd.nearly(said, most=1))
    return _put_together(whole, numbers, draw(st.just(0) | _LENGTHS))


@st.composite
def _described(draw: DrawFn) -> bytes:
    """A serving model that says odd things of its run."""
    header, numbers, about = _model()
    said = draw(odd.nearly(about))
    text = draw(st.sampled_from([json.dumps(said), "[" * 3000, json.dumps(said)[:-1], ""]))
    return _put_together({**header, "__metadata__": {"pfl": text}}, numbers, 0)


@cache
def _model() -> tuple[dict[str, Any], bytes, dict[str, object]]:
    tensors, about = served()
    header, numbers = dict[str, Any](), b""
    for name, value in tensors.items():
        plain = value.numpy().tobytes()
        dtype = {"float32": "F32", "int64": "I64"}[str(value.dtype).removeprefix("torch.")]
        places = [len(numbers), len(numbers) + len(plain)]
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": places}
        numbers += plain
    return header, numbers, about


def _put_together(header: Any, numbers: bytes, wrong: int) -> bytes:
    text = as_json(header)
    length = (len(text) + wrong) % 2**64
    return length.to_bytes(8, "little") + text + numbers


@shape("safetensors")
def build_file() -> Shape:
    """A file of tensors, or a serving model."""
    return st.one_of(_changed(), _described(), _sound().map(lambda one: _put_together(*one, 0)))
