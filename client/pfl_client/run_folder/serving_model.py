"""The complete model a site predicts with once the run is over: `runs/<run>/serving/`."""

from __future__ import annotations

import shutil
from pathlib import Path

from pfl_client.trainer_process.task_errors import disk_full
from pfl_common.files import atomic


class ServingModel:
    """The complete model a site predicts with, and the one it had before."""

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

    def commit(self) -> None:
        """Bring the draft into service. At each instant a whole model is in service, the old or the new."""
        with disk_full(self._folder):
            if self.current.exists():
                part = self.previous.with_name(self.previous.name + ".part")
                # A copy, not a link: not every file system knows links.
                shutil.copyfile(self.current, part)
                atomic.sync(part)
                atomic.move(part, self.previous)
            atomic.sync(self.draft)
            atomic.move(self.draft, self.current)
            atomic.settle(self._folder)
