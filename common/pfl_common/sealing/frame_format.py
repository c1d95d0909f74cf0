"""The layout of sealed bytes: frames of 1 MiB and a tag, each bound to its place and to one header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args  # Any: names in what JSON gave

from pfl_common.errors import Refused
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.run import ClientId, Direction, Header

FRAME = 1 << 20
TAG = 16
LARGEST_HEADER = 1 << 16

Code: TypeAlias = Literal["truncated", "frame", "order", "wrap", "signature", "header", "size"]
CODES: tuple[Code, ...] = get_args(Code)

_MOST_FRAMES = 1 << 32


class Tampered(Refused):
    """A sealed parcel is not what its sender sealed for us; none of it was used."""

    def __init__(self, code: Code, words: str) -> None:
        super().__init__(code, words)


@dataclass(frozen=True)
class Binding:
    """The facts that every part of a parcel is bound to: the header's hash, direction and sender.

    `digests` is the suite: by which hash a download's sealed bytes are signed.
    """

    hash: bytes
    direction: Direction
    sender: ClientId
    digests: Digests = FIRST


def bind(header: Header | bytes) -> Binding:
    """Read a header as far as sealing needs it; a text must be canonical, or two texts could mean one."""
    if isinstance(header, Header):
        said = {} if header.digests == FIRST else {"digests": header.digests}
        digest = hashlib.sha256(header.to_json().encode()).digest()
        return Binding(digest, header.direction, header.sender, _read_digests(said, header.direction))
    return _bind_text(header)


@lru_cache(maxsize=64)  # all sites of a round are sent one header
def _bind_text(header: bytes) -> Binding:
    try:
        fields = json.loads(header) if len(header) <= LARGEST_HEADER else None
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        fields, canonical = None, b""
    match fields:
        case {"direction": "down" | "up" as direction, "sender": str(sender), **more} if canonical == header:
            return Binding(hashlib.sha256(header).digest(), direction, sender, _read_digests(more, direction))
        case _:
            raise Tampered(
                "header",
                f"a header of {len(header)} bytes that is no canonical JSON with direction and sender; "
                "expected: the bytes of Header.to_json",
            )


def _read_digests(fields: Mapping[Any, object], direction: str) -> Digests:
    """The suite of a header; that of older parcels has no word, and going up there is no other."""
    if "digests" not in fields:
        return FIRST
    if fields["digests"] == "blake3" and direction == "down":
        return "blake3"
    raise Tampered(
        "header",
        f"a header going {direction} with the digests {str(fields['digests'])[:63]!r}; expected: blake3 going down, or "
        "no word of them; compare the versions of coordinator and site",
    )


def count_frames(plain: int) -> int:
    """The number of frames for `plain` bytes; no bytes at all are still one, empty, last frame."""
    count = max(1, -(-plain // FRAME))
    if count > _MOST_FRAMES:
        raise Tampered("size", f"{plain} bytes; expected: at most {_MOST_FRAMES} frames of {FRAME} bytes")
    return count


def sealed_size(plain: int) -> int:
    """Size of `plain` bytes once they are sealed."""
    return plain + TAG * count_frames(plain)


def plain_size(sealed: int) -> int:
    """Size of the content of `sealed` bytes; a size that sealing never gives is refused."""
    plain = sealed - TAG * max(1, -(-sealed // (FRAME + TAG)))
    if plain < 0 or sealed_size(plain) != sealed:
        raise Tampered("size", f"{sealed} bytes; expected: whole frames with their tags, and never nothing")
    return plain
