"""Pins the tensors of a kind of parcel for a run: their names, types, shapes and order, as a manifest."""

from __future__ import annotations

from collections.abc import Sequence

from pfl_common.spec.manifest import Entry, Manifest
from pfl_common.tensors.state import State


def pin(samples: Sequence[State]) -> Manifest:
    """The manifest that fits all sample parcels; a branch that some lack becomes an optional group."""
    entries: dict[str, Entry] = {}
    for state in samples:
        for name, value in state.items():
            entry = Entry(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
            if entries.setdefault(name, entry) != entry:
                raise ValueError(f"{name!r} changes between parcels: {entries[name]} and {entry}")
    optional = {name.partition(".")[0] for state in samples for name in entries if name not in state}
    return tuple(_in_group(entries[name], optional) for name in sorted(entries))


def _in_group(entry: Entry, optional: set[str]) -> Entry:
    branch = entry.name.partition(".")[0]
    return Entry(entry.name, entry.dtype, entry.shape, branch if branch in optional else "")
