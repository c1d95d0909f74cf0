"""Parcels as the trainer reads and writes them: a download from memory or a mapped file, an update into either.

An update whose run encodes what crosses is written as its changes. What did not cross of them is kept beside the site's
own state, in the same generation of the vault, under names that no tensor of a model can have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pfl_client.trainer_process.api import Job, Parcel
from pfl_client.trainer_process.large_parcels import goes_as_file
from pfl_common.learning.method import LocalData
from pfl_common.spec.encoding import parse_encoding
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.run import RunSpec, Task
from pfl_common.tensors import codec, mapped
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SUM

REST = "~rest"
"""The branch, in a generation's file, of what did not cross of the site's last change."""


def read_parcel(parcel: Parcel, manifest: Manifest, groups: tuple[str, ...]) -> State:
    """A download's tensors."""
    # Torch wants memory it may write to: the bytes if they are ours, a copy of them, or a file mapped so that it stays.
    if not isinstance(parcel, Path):
        view = memoryview(parcel)
        if not view.readonly:
            return codec.decode(view, manifest, groups)
        room = _Room(fresh(len(view)))
        room.write(view)
        return codec.decode(room.content, manifest, groups)
    empty = parcel.stat().st_size == 0
    return codec.decode(bytearray() if empty else np.memmap(parcel, mode="c"), manifest, groups)


def fresh(size: int) -> memoryview:
    """Memory of so many bytes."""
    memory: memoryview = mapped.zeros((size,), torch.uint8).numpy().data
    return memory


def take_apart(held: Mapping[str, Tensor]) -> tuple[State, State]:
    """A generation's own state, and what did not cross of the last change."""
    every = State(held)
    rest = every.under(REST)
    return (every.only(every.keys() - rest.within(REST).keys()) if rest else every), rest


def put_together(kept: State, changes: Changes) -> State:
    """A generation as it is written."""
    return kept | State(changes.rest).within(REST) if changes.rest else kept


def open_changes(spec: RunSpec, data: LocalData, task: Task, *, down: State, rest: State) -> Changes:
    """Where an update's changes are written; a site that begins has nothing left of an earlier one."""
    by_chance = parse_encoding(spec.encoding).is_stochastic
    return Changes(
        down.within(SUM),
        rest if task.since else State(),
        (lambda name: data.generator(task, "encode", name)) if by_chance else None,
    )


def loses(spec: RunSpec) -> bool:
    """Whether a part of each change does not cross at once, and is kept."""
    form = parse_encoding(spec.encoding).up
    return form is not None and form.keeps_rest


def write_update(
    state: State, manifest: Manifest, job: Job, changes: Changes, room: Callable[[int], memoryview]
) -> tuple[Parcel | None, tuple[str, ...]]:
    """Write an update into memory, or into the job's file if it is large, or nowhere if it is not to be sent."""
    if job.task.drop:
        return None, codec.encode(state, manifest, _Nowhere(), changes)
    size = codec.size_of(manifest, codec.find_groups(state, manifest))
    if job.parcel_as is not None and goes_as_file(size):
        with os.fdopen(os.open(job.parcel_as, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
            groups = codec.encode(state, manifest, file, changes)
            file.truncate()
            return job.parcel_as, groups
    memory = _Room(room(size))
    groups = codec.encode(state, manifest, memory, changes)
    return memory.content, groups


class _Room:
    """Memory for a whole parcel, allocated at once because growing it costs more than writing."""

    def __init__(self, content: memoryview) -> None:
        self.content, self._end = content, 0

    def write(self, content: memoryview, /) -> None:
        """Add the next bytes."""
        self.content[self._end : self._end + len(content)] = content
        self._end += len(content)


class _Nowhere:
    """Takes the bytes of an update that is not sent: of its changes only what would not have crossed is wanted."""

    def write(self, content: memoryview, /) -> None:
        """Forget them."""
