"""Tensors as a safetensors file, written here so that it is hashed on the way and the same values are the same bytes.

Form: the length of the header in eight bytes, the header in JSON with each tensor's type, shape and place, the
numbers. Wider numbers come first, then names decide, so that every tensor begins where its type may begin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import torch
from torch import Tensor

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
_ALIGNED = 64
_PIECE = 1 << 20


def write(tensors: Mapping[str, Tensor], out: BinaryIO) -> str:
    """Write all tensors; gives the SHA-256 of what was written. Only what does not lie in one piece is copied."""
    digest = hashlib.sha256()
    for piece in _pieces(tensors):
        # Hashed while it is in the cache, a piece is not read a second time from memory or disk.
        digest.update(piece)
        out.write(piece)
    return digest.hexdigest()


def _pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    yield _header({name: tensors[name] for name in order})
    for name in order:
        value = tensors[name].detach().to("cpu").contiguous()
        content = value.reshape(-1).view(torch.uint8).numpy().data
        for start in range(0, len(content), _PIECE):
            yield content[start : start + _PIECE]


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, offset = {}, 0
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
