"""Checks before a task that the disk has room for it, so that no training is in vain. Torch-free."""

from __future__ import annotations

import shutil
from math import prod
from pathlib import Path

from pfl_client.run_folder.downloads import Downloads
from pfl_client.run_folder.serving_model import ServingModel
from pfl_client.run_folder.vault_generations import Vault
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.spec.encoded_form import PLAIN, read_form
from pfl_common.spec.manifest import WIDTHS, Manifest, full_size
from pfl_common.spec.memo import remembered
from pfl_common.spec.messages import Assignment
from pfl_common.spec.run import Kind, RunSpec, Task

SPARE = 4 << 20
"""For what is too small to be counted: notes, scores, the pointer, the trainer's socket."""

_MB = 1e6


def check(folder: Path, needed: int) -> None:
    """Refuse to begin what would run out of room."""
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise DiskFull(
            f"{free / _MB:.1f} MB are free on the site's disk, what comes next needs {(needed + SPARE) / _MB:.1f} MB",
            expected="room for the download, the next state, the update and the serving model",
            advice=f"make room on the disk of {folder}; the site goes on by itself",
        )


class Space:
    """The room that a run's tasks need on the disk."""

    def __init__(
        self, folder: Path, spec: RunSpec, *, downloads: Downloads, vault: Vault, serving: ServingModel
    ) -> None:
        self._folder, self._spec = folder, spec
        self._downloads, self._vault, self._serving = downloads, vault, serving

    def check(self, assignment: Assignment, *, wary: bool = False) -> None:
        """Refuse to begin a task whose files have no room. What the next state will hold is only known from the
        one before; `wary` counts with a whole model instead, for a site that has run out of room in mid-task.
        """
        try:
            check(self._folder, self._needed(assignment, wary=wary))
        except DiskFull:
            self._downloads.forget_opened()
            check(self._folder, self._needed(assignment, wary=wary))

    def suffices(self, assignment: Assignment) -> bool:
        """Whether a task's files have room, as far as their sizes are known."""
        try:
            self.check(assignment)
        except DiskFull:
            return False
        return True

    def _needed(self, assignment: Assignment, *, wary: bool) -> int:
        task, blob = assignment.task, assignment.blob
        needed = self._downloads.lacking(blob) + self._downloads.needed_to_open(blob)
        model = full_size(self._spec.init_manifest)
        # Whether this round is the best is only known when it has been measured.
        needed += model if self._spec.keep == "best" else 0
        if task.kind is Kind.EVALUATE:
            return needed
        kept = self._vault.at(task.since)
        state = kept.stat().st_size if kept is not None else self._smallest(assignment)
        needed += max(model, state) if wary else state
        if task.kind is Kind.FINISH:
            return needed + model + (model if self._serving.current.exists() else 0)
        up = 0 if task.drop else full_size(self._spec.manifest(task.kind, task.phase, "up"))
        # A large update lies open for a moment beside its sealed form; what is larger still has its download's place.
        sealed = max(0, up - self._downloads.given_back(blob))
        return needed + sealed + self._downloads.needed_for_update(up)

    def _smallest(self, assignment: Assignment) -> int:
        """What a first state holds at least: what does not come down, and the rest."""
        model, opened = full_size(self._spec.init_manifest), self._downloads.opened_size(assignment.blob)
        return max(0, model - opened) + self._rest(assignment.task)

    def _rest(self, task: Task) -> int:
        """What is kept with the state: what may not cross of an encoded update, and what changes are changes of."""
        if task.kind is not Kind.TRAIN:
            return 0
        manifest, delta = self._spec.manifest(task.kind, task.phase, "up"), self._spec.delta(task.phase)
        return _decoded_size(manifest, True) + _decoded_size(delta, False)


@remembered
def _decoded_size(manifest: Manifest, only_lossy: bool, /) -> int:
    """Bytes of the encoded tensors once they are decoded; of all, or of those whose encoding loses something."""
    forms = ((entry, read_form(entry.dtype)) for entry in manifest)
    taken = (entry for entry, form in forms if form and (form.keeps_rest or not only_lossy))
    return sum(prod(entry.shape) * WIDTHS[PLAIN] for entry in taken)
