"""Checks before a task that the disk has room for it, so that no training is in vain. Torch-free."""

from __future__ import annotations

import shutil
from pathlib import Path

from pfl_client.trainer_process.task_errors import DiskFull

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
