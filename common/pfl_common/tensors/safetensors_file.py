"""Writes tensors as a safetensors file: equal values give equal bytes, and the hash is computed on the way.

Form: the length of the header in eight bytes, the header in JSON with each tensor's type, shape and place, the
numbers. Wider numbers come first, then names decide, so that every tensor begins where its type may begin.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pfl_common.spec import digests
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.tensors.small_tensors import iterate_bytes

NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TYPES = {name: dtype for dtype, name in NAMES.items()}
_LENGTH = 8
"""Bytes of the header's own length."""
_ALIGNED = 64
_PIECE = 1 << 20


class Out(Protocol):
    """A file, or an object that writes to one."""

    def write(self, content: bytes | memoryview, /) -> object:
        """Write on."""


class Hashed:
    """A file that is hashed while it is written, so that it need not be read again."""

    def __init__(self, out: Out, by: Digests = FIRST) -> None:
        self._out, self._hash = out, digests.start(by)

    def write(self, content: bytes | memoryview, /) -> None:
        """Write on."""
        self._hash.update(content)
        self._out.write(content)

    @property
    def digest(self) -> str:
        """The hash of what was written so far."""
        return self._hash.hexdigest()


class _Nothing:
    """Where bytes go that are only hashed."""

    def write(self, content: bytes | memoryview, /) -> None:
        """They are gone."""


def digest_of(tensors: Mapping[str, Tensor], by: Digests = FIRST) -> str:
    """The hash of the file that these tensors would be."""
    hashed = Hashed(_Nothing(), by)
    write(tensors, hashed)
    return hashed.digest


def read_mapped(file: Path) -> tuple[dict[str, Tensor], mmap.mmap]:
    """The tensors of a file that `write` has written, which look into it: a page is copied when it is written to. The
    mapping lives as long as one of them does.
    """
    with file.open("rb") as raw:
        memory = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_COPY)
    start = _LENGTH + int.from_bytes(memory[:_LENGTH], "little")
    entries = json.loads(memory[_LENGTH:start])
    entries.pop("__metadata__", None)
    return {name: _look(memory, start, entry) for name, entry in entries.items()}, memory


def _look(memory: mmap.mmap, start: int, entry: dict[str, Any]) -> Tensor:  # as JSON has it
    dtype, (begin, end) = _TYPES[entry["dtype"]], entry["data_offsets"]
    if begin == end:
        return torch.zeros(entry["shape"], dtype=dtype)
    count = (end - begin) // dtype.itemsize
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=start + begin).view(entry["shape"])


def write(tensors: Mapping[str, Tensor], out: Out, about: Mapping[str, str] | None = None) -> None:
    """Write all tensors, and what is to be said of them. Only what does not lie in one piece is copied."""
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    out.write(_header({name: tensors[name] for name in order}, about or {}))
    for content in iterate_bytes(tensors[name] for name in order):
        for start in range(0, len(content), _PIECE):
            out.write(content[start : start + _PIECE])


def _header(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> bytes:
    entries: dict[str, object] = {"__metadata__": dict(sorted(about.items()))} if about else {}
    offset = 0
    for name, value in tensors.items():
        if value.dtype not in NAMES:
            raise TypeError(f"{name!r} is {value.dtype}: a file can hold {', '.join(sorted(NAMES.values()))}")
        entries[name] = {
            "dtype": NAMES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + value.nbytes],
        }
        offset += value.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    # Spaces may follow the header: with them the first tensor begins where a line of the cache does.
    text += b" " * (-(len(text) + 8) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text
