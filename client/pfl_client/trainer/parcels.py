"""Parcels as the trainer reads and writes them: a download from memory or a mapped file, an update into either.

An update whose run encodes what crosses is written as its changes. What did not cross of them is kept beside the site's
own state, in the same generation of the vault, under names that no tensor of a model can have. So is what the site was
sent, where the next download may be the change of it.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pfl_client.trainer_process.api import Job, Parcel
from pfl_client.trainer_process.buffers import Pool
from pfl_client.trainer_process.large_parcels import goes_as_file, lies_in_memory
from pfl_client.trainer_process.task_errors import Tampered
from pfl_common.learning.method import LocalData, Participant
from pfl_common.spec.encoding import parse_encoding
from pfl_common.spec.manifest import Manifest, changing_names
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors import codec, mapped
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.rows import Row
from pfl_common.tensors.sent_state import SENT, digest_of
from pfl_common.tensors.state import State
from pfl_common.tensors.update import SUM

REST = "~rest"
"""The branch, in a generation's file, of what did not cross of the site's last change."""


@dataclass(frozen=True)
class Beside:
    """What lies in a generation beside the site's own state."""

    rest: State = field(default_factory=State)
    """What did not cross of its last change."""
    sent: State = field(default_factory=State)
    """What it was sent of the encoded tensors, where downloads cross as changes."""


def read_down(spec: RunSpec, job: Job, before: State, participant: Participant) -> tuple[State, State]:
    """A task's download, and what of it the site holds for the next one. `before` is what it held so far; a site that
    was in no round yet holds its first model, which the participant is.
    """
    task, delta = job.task, spec.delta(job.task.phase)
    if job.as_delta and task.since == 0:
        first = State.view(participant)
        before = State({n: first[n].to("cpu") for n in changing_names(delta) if n in first})
    if job.as_delta and before.keys() != set(changing_names(delta)):
        raise _astray(job, f"this site's state of round {task.since} holds nothing of that round's download")
    manifest = delta if job.as_delta else spec.manifest(task.kind, task.phase, "down")
    down = read_parcel(job.down, manifest, job.groups, before)
    if task.kind is not Kind.TRAIN or not delta:
        return down, State()
    held = down.only(changing_names(delta))
    if digest_of(held, delta, spec.digests) != job.sent:
        raise _astray(job, "it leads to other numbers than the coordinator has signed")
    return down, held


def _astray(job: Job, why: str) -> Tampered:
    """The site's next download is whole: nothing has to be mended for that."""
    kind = "change" if job.as_delta else "download"
    return Tampered(
        f"the {kind} that came for {job.task.key} cannot be used: {why}",
        expected="what the other sites are sent, to the last bit",
        advice="tell the operator if it comes again: the next download does not build on what this site holds",
    )


def read_parcel(
    parcel: Parcel, manifest: Manifest, groups: tuple[str, ...], base: State | None = None
) -> State:
    """A download's tensors; changes are added to their base."""
    # Torch wants memory it may write to: the bytes if they are ours, a copy of them, memory that the daemon fills anew
    # for each task, or a file mapped so that it stays.
    if not isinstance(parcel, Path):
        view = memoryview(parcel)
        if not view.readonly:
            return codec.decode(view, manifest, groups, base)
        room = _Room(fresh(len(view)))
        room.write(view)
        return codec.decode(room.content, manifest, groups, base)
    if lies_in_memory(parcel):
        return codec.decode(_DOWNLOADS.look_at(parcel), manifest, groups, base)
    empty = parcel.stat().st_size == 0
    return codec.decode(bytearray() if empty else np.memmap(parcel, mode="c"), manifest, groups, base)


def look_at_file(parcel: Path, manifest: Manifest) -> State:
    """A large parcel's tensors as they lie in its file, to be read alone: so they count as nobody's memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return codec.decode(np.memmap(parcel, mode="r"), manifest, ())


class SharedMemory:
    """Memory that the daemon sees too. It stays mapped: its small pages are looked for once, not for each parcel."""

    def __init__(self) -> None:
        self._last: tuple[int, mmap.mmap] | None = None

    def look_at(self, place: Path, size: int | None = None) -> memoryview:
        """All of it; so many bytes, if somebody is to fill it."""
        handle = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        try:
            seen = os.fstat(handle)
            wanted = seen.st_size if size is None else size
            # Also where it is mapped already: beyond its end there would be no memory.
            if seen.st_size != wanted:
                os.ftruncate(handle, wanted)
            last = self._last
            if last is None or (last[0], len(last[1])) != (seen.st_ino, wanted):
                last = self._last = seen.st_ino, mmap.mmap(handle, wanted)
        finally:
            os.close(handle)
        return memoryview(last[1])


_DOWNLOADS = SharedMemory()
"""Where the daemon puts the last large download; of a process that plays several sites, the last one's."""


class UpdateRoom:
    """Where updates are written. With a `pool`, each over the last one's memory."""

    def __init__(self, pool: Pool | None = None) -> None:
        self._take = pool.take if pool else fresh
        self._shared = SharedMemory()

    def beside(self, size: int) -> memoryview:
        """Memory for an update that goes in a message."""
        return self._take(size)

    def shared(self, place: Path, size: int) -> memoryview:
        """Memory that the daemon sees too."""
        return self._shared.look_at(place, size)


def fresh(size: int) -> memoryview:
    """Memory of so many bytes."""
    memory: memoryview = mapped.zeros((size,), torch.uint8).numpy().data
    return memory


def take_apart(held: Mapping[str, Tensor]) -> tuple[State, Beside]:
    """A generation's own state, and what lies beside it."""
    every = State(held)
    own = (name for name in every if name.partition(".")[0] not in (REST, SENT))
    return every.only(own), Beside(every.under(REST), every.under(SENT))


def put_together(kept: State, beside: Beside) -> State:
    """A generation as it is written."""
    return kept | beside.rest.within(REST) | beside.sent.within(SENT)


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


def write_update(rows: Sequence[Row], job: Job, changes: Changes, room: UpdateRoom) -> Parcel | None:
    """Write an update into memory, or into the job's file if it is large, or nowhere if it is not to be sent."""
    if job.task.drop:
        codec.write(rows, _Nowhere(), changes)
        return None
    size = sum(place.size for row in rows for place in row.places)
    if job.parcel_as is not None and goes_as_file(size):
        if lies_in_memory(job.parcel_as):
            codec.write(rows, _Room(room.shared(job.parcel_as, size)), changes)
            return job.parcel_as
        with os.fdopen(os.open(job.parcel_as, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
            codec.write(rows, file, changes)
            file.truncate()
            return job.parcel_as
    memory = _Room(room.beside(size))
    codec.write(rows, memory, changes)
    return memory.content


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
