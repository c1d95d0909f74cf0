"""Checks before a task that the disk has room for it, so that no training is in vain. Torch-free."""

from __future__ import annotations

import re
import shutil
from math import prod
from pathlib import Path

from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.spec.memo import remembered
from pfl_common.spec.run import Manifest

SPARE = 4 << 20
"""For what is too small to be counted: notes, scores, the pointer, the trainer's socket."""

_MB = 1e6


@remembered
def size_of(manifest: Manifest) -> int:
    """The size of a parcel with all of these tensors."""
    return sum(prod(entry.shape) * _width(entry.dtype) for entry in manifest)


def check(folder: Path, needed: int) -> None:
    """Refuse to begin what would run out of room."""
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise DiskFull(
            f"{free / _MB:.1f} MB are free on the site's disk, what comes next needs {(needed + SPARE) / _MB:.1f} MB",
            expected="room for the download, the next state, the update and the serving model",
            advice=f"make room on the disk of {folder}; the site goes on by itself",
        )


def _width(dtype: str) -> int:
    bits = re.search(r"\d+$", dtype)
    return int(bits.group()) // 8 if bits else 1
