"""The exact shape of a parcel: its tensors in their order, and their sizes in bytes. Torch-free."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from pfl_common.errors import UserError, nearest
from pfl_common.spec.encoded_form import PLAIN, read_form
from pfl_common.spec.memo import remembered

WIDTHS = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "bool": 1,
}
"""The types that numbers of a parcel can have, and the bytes of one number of each."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a parcel. `group` names the optional group it belongs to; empty means always present. `dtype` is
    the type of its numbers, or the form in which they are encoded: see `encoded_form`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    group: str = ""

    @property
    def nbytes(self) -> int:
        """The number of its bytes in a parcel."""
        if (form := read_form(self.dtype)) is not None:
            return form.size(prod(self.shape))
        if self.dtype not in WIDTHS:
            raise UserError(
                f"the tensor {self.name} has numbers of type {self.dtype[:60]!r}",
                expected=nearest(self.dtype[:60], WIDTHS),
                advice="use the same release of pfl on all machines",
            )
        return prod(self.shape) * WIDTHS[self.dtype]


Manifest: TypeAlias = tuple[Entry, ...]


DELTA = "delta"
"""In the name of a parcel, in the place of its direction: a download to train, as the change since the round before."""


def delta_key(phase: str) -> str:
    """The name under which the manifest of such a download is pinned."""
    return f"train/{phase}/{DELTA}"


@remembered
def changing_names(manifest: Manifest) -> tuple[str, ...]:
    """Names of the tensors that cross as changes, in their order."""
    forms = ((entry.name, read_form(entry.dtype)) for entry in manifest)
    return tuple(name for name, form in forms if form is not None and form.is_change)


@remembered
def full_size(manifest: Manifest) -> int:
    """Bytes of a parcel with all of these tensors, those of every optional group included."""
    return sum(entry.nbytes for entry in manifest)


@remembered
def decode_manifest(manifest: Manifest) -> Manifest:
    """The same tensors as they are once they are decoded; the very same manifest if none of them is encoded."""
    if all(read_form(entry.dtype) is None for entry in manifest):
        return manifest
    return tuple(replace(entry, dtype=PLAIN) if read_form(entry.dtype) else entry for entry in manifest)


@remembered
def manifest_hash(manifest: Manifest) -> str:
    """A short fingerprint both ends compare before the first byte is read."""
    text = json.dumps([[e.name, e.dtype, list(e.shape), e.group] for e in manifest], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
