"""Letters between daemon and trainer with fields of another kind, and bodies longer or shorter than they say."""

from __future__ import annotations

import json
from typing import Any  # JSON has no narrower type

from hypothesis import strategies as st

from pfl_client.trainer_process import protocol
from tests.fuzz import odd
from tests.fuzz.shape import Shape, as_json, shape
from tests.fuzz.targets.letters import LETTERS, SEPARATOR

_SIZES = st.sampled_from([0, 1, 6, 7, protocol.PARCEL_LIMIT, protocol.PARCEL_LIMIT + 1, 2**63, 2**64 - 1])
_BODIES = st.lists(st.sampled_from([b"", b"p", b"parcel"]), max_size=4)


@shape("letters")
def build_letter() -> Shape:
    """The frames of a message, in their order and with a size that is most often right."""
    said = odd.one_of([json.loads(bytes(protocol.pack(b"", letter)[1])) for letter in LETTERS])
    letters = said.flatmap(odd.nearly).map(as_json) | st.just(b"[" * 5000)
    sizes = st.none() | _SIZES | st.binary(max_size=9)
    parts = st.tuples(letters, _BODIES, sizes, st.sampled_from(["", "", "", "swap", "less", "twice"]))
    return parts.map(_put_together)


def _put_together(parts: tuple[bytes, list[bytes], Any, str]) -> bytes:
    letter, body, size, how = parts
    right = sum(map(len, body)) if size is None else size
    told = right if isinstance(right, bytes) else right.to_bytes(8, "big")
    frames = [letter, told, *body]
    match how:
        case "swap":
            frames.reverse()
        case "less":
            frames.pop()
        case "twice":
            frames += frames
    return SEPARATOR.join(frames)
