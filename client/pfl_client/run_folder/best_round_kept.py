"""The model of the round that was best on the site's validation part, while the run goes on: `runs/<run>/best/`.

    best.json             the pointer: which files are in force, and how good each was
    *.safetensors         complete models the pointer names; anything else is swept
    next.safetensors      where the trainer writes; of no meaning until `commit`

Like a generation of the vault each one belongs to a committed round of the site. One that was measured after training
belongs to the round under way: until that is committed the one before stays, and comes back if the round is abandoned.
A task that is done again after a kill measures the same model, and nothing differs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pfl_client.trainer_process.api import BestSoFar, Measured
from pfl_client.trainer_process.task_errors import disk_full
from pfl_common.errors import StateError
from pfl_common.files import atomic
from pfl_common.spec.run import Task


@dataclass(frozen=True)
class Entry:
    """A best model: the round of the site's own state that it belongs to, its file, and how good it was."""

    since: int
    file: str
    measured: Measured


@dataclass(frozen=True)
class Pointer:
    """The models in force, newest first; `serial` makes each one's file name new."""

    entries: tuple[Entry, ...] = ()
    serial: int = 0


@cache
def _pointers() -> TypeAdapter[Pointer]:
    return TypeAdapter(Pointer)


class BestRound:
    """The best model so far, and the one it replaces if its round is abandoned. The vault's lock is over this too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        atomic.make_folder(folder)
        self._pointer = _read_pointer(folder / "best.json")
        self._sweep()

    @property
    def draft(self) -> Path:
        """Where the trainer writes a better one; it overwrites nothing that is in force."""
        return self._folder / "next.safetensors"

    def so_far(self, since: int, *, write_as: Path | None = None) -> BestSoFar:
        """The best for a task that begins from the site's state of this round."""
        entry = self._find(since)
        if entry is None:
            return BestSoFar(write_as or self.draft)
        return BestSoFar(write_as or self.draft, entry.measured, self._folder / entry.file)

    def commit(self, task: Task, better: Measured | None) -> None:
        """Bring the draft into force, if the task has written one. To be done before the task's own generation is: a
        task that is done is not done again.
        """
        if better is None:
            return
        # What was measured before training is the model after a committed round, whatever becomes of this one.
        since = task.round if better.round == task.round else task.since
        before = self._find(task.since) if since > task.since else None
        serial = self._pointer.serial + 1
        new = Entry(since, f"{better.round:06d}-{serial}.safetensors", better)
        with disk_full(self._folder):
            atomic.sync(self.draft)
            atomic.move(self.draft, self._folder / new.file)
            atomic.settle(self._folder)
            self._point(Pointer((new,) if before is None else (new, before), serial))
        self._sweep()

    def _find(self, since: int) -> Entry | None:
        return next((entry for entry in self._pointer.entries if entry.since <= since), None)

    def _point(self, pointer: Pointer) -> None:
        """Write the pointer: it is exchanged in one step."""
        fresh = self._folder / "best.json.part"
        atomic.fill(fresh, json.dumps(asdict(pointer), sort_keys=True).encode())
        atomic.move(fresh, self._folder / "best.json")
        self._pointer = pointer
        atomic.settle(self._folder)

    def _sweep(self) -> None:
        named = {"best.json", *(entry.file for entry in self._pointer.entries)}
        for path in self._folder.iterdir():
            if path.name not in named:
                atomic.remove(path)


def _read_pointer(path: Path) -> Pointer:
    """A model that is gone is forgotten: the last one is there all the same."""
    if not path.exists():
        return Pointer()
    try:
        pointer = _pointers().validate_json(path.read_bytes())
    except ValidationError as error:
        raise StateError(
            f"{path} cannot be read ({error.error_count()} errors)",
            expected="the file as pfl-client wrote it",
            advice="bring the folder back from a copy, or move it away: the best of the rounds to come is kept then",
        ) from None
    there = tuple(entry for entry in pointer.entries if (path.parent / entry.file).is_file())
    return Pointer(there, pointer.serial)
