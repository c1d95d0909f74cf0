"""Specifications and manifests whose rules, shapes, types and groups are those of no run."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from hypothesis import strategies as st

from pfl_common.spec.manifest import WIDTHS
from pfl_common.spec.run import Weights
from pfl_common.spec.table_schema import Column
from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.targets.calls import HEADER
from tests.fuzz.targets.specifications import PARCEL, pin

_HASH = "ab" * 32
_NAMES = st.sampled_from(["w", "m", "sum.w", ""]) | odd.words
_SIDES = st.integers(-1, 4) | odd.numbers
_ENTRIES = st.tuples(
    _NAMES,
    st.sampled_from([*WIDTHS, "float8", "F32", "object", ""]),
    st.lists(_SIDES, max_size=4) | st.lists(odd.numbers, max_size=4) | st.just([0] * 70) | odd.scalars,
    st.sampled_from(["", "g", "h"]) | odd.words,
)
_SOUND = st.tuples(
    st.sampled_from("abcdefgh"),
    st.sampled_from(sorted(WIDTHS)),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["", "g", "h"]),
)


def _pin_all() -> dict[str, object]:
    """A run that says something in each field that may be left out."""
    columns = (Column("age", mean=1.0, deviation=2.0), Column("ward", categories=("a", "b")))
    model = replace(pin().model, words=("fever",), tokens=3, columns=("a",), mean=(0.5,), deviation=(0.5,))
    full = replace(pin(), frozen=("encoder",), weights=Weights("w", _HASH, _HASH), data={"site-a": "ab"})
    said = json.loads(replace(full, model=model, chosen={"shape": "1x4x4"}).to_json())
    said["model"]["table"] = json.loads(json.dumps([asdict(column) for column in columns]))
    return said


@shape("specification")
def build_specification() -> Shape:
    """A run's specification, as it is hashed."""
    plain = json.loads(pin().to_json())
    manifests = st.dictionaries(
        st.sampled_from(["init", "train/train/down", "train/train/up", "finish/x/up"]) | odd.words,
        st.lists((_ENTRIES | _SOUND).map(_name_entry), max_size=3),
        max_size=4,
    )
    shaped = manifests.map(lambda found: {**plain, "manifests": {**plain["manifests"], **found}})
    return (odd.nearly(plain) | odd.nearly(_pin_all()) | shaped).map(as_json)


@shape("header")
def build_header() -> Shape:
    """A parcel's header, canonical or not."""
    said = odd.nearly(json.loads(HEADER.to_json()))
    canonical = said.map(lambda one: json.dumps(one, sort_keys=True, separators=(",", ":")).encode())
    return canonical | said.map(as_json)


@shape("parcel")
def build_parcel() -> Shape:
    """A manifest and, most often, as many bytes as it says."""
    sound = st.lists(_SOUND, max_size=5, unique_by=lambda entry: entry[0]).map(_fill)
    return sound | st.tuples(odd.nearly(PARCEL), st.binary(max_size=40)).map(
        lambda pair: as_json(pair[0]) + b"\n" + pair[1]
    )


def _name_entry(entry: tuple[object, ...]) -> dict[str, object]:
    return dict(zip(("name", "dtype", "shape", "group"), entry, strict=True))


def _fill(entries: list[tuple[str, str, list[int], str]]) -> bytes:
    size = 0
    for _, dtype, sides, _ in entries:
        count = WIDTHS[dtype]
        for side in sides:
            count *= side
        size += count
    groups = sorted({group for *_, group in entries if group})
    plain = bytes(place % 251 for place in range(size))
    return as_json({"manifest": entries, "groups": groups}) + b"\n" + plain
