"""The complete models a site predicts with once the run is over: `runs/<run>/serving/`.

serving.safetensors             of the last round
serving.previous.safetensors    the one that was there before it
best.safetensors                of the round that was best on the site's validation part, if the run keeps it
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pfl_client.trainer_process.task_errors import disk_full
from pfl_common.files import atomic


class ServingModel:
    """The complete model a site predicts with, the one it had before, and the best."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        atomic.make_folder(folder)

    @property
    def draft(self) -> Path:
        """Where the trainer writes a new one."""
        return self._folder / "serving.new.safetensors"

    @property
    def previous(self) -> Path:
        """Where the one before lies."""
        return self._folder / "serving.previous.safetensors"

    @property
    def current(self) -> Path:
        """Where `predict`, `evaluate` and `export` find it."""
        return self._folder / "serving.safetensors"

    @property
    def best_draft(self) -> Path:
        """Where the trainer writes the best one."""
        return self._folder / "best.new.safetensors"

    @property
    def best(self) -> Path:
        """Where `predict`, `evaluate` and `export` find it with `--which best`."""
        return self._folder / "best.safetensors"

    def commit(self, *, best: bool = False) -> None:
        """Bring the draft into service, and that of the best model if there is one. At each instant a whole model is in
        service, the old or the new; a task that ended in between is done again.
        """
        with disk_full(self._folder):
            if best:
                atomic.sync(self.best_draft)
                atomic.move(self.best_draft, self.best)
            if self.current.exists():
                part = self.previous.with_name(self.previous.name + ".part")
                # A copy, not a link: not every file system knows links.
                shutil.copyfile(self.current, part)
                atomic.sync(part)
                atomic.move(part, self.previous)
            atomic.sync(self.draft)
            atomic.move(self.draft, self.current)
            atomic.settle(self._folder)
