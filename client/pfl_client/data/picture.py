"""One picture of a data folder: its file, its class, and what it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Picture:
    """A file of a class. Logs name it by its position; names of files and groups stay with the site's owner."""

    position: str
    """Such as "file 3 of train/cat", its place in what `LC_ALL=C ls` shows, or "row 3 of train.csv"."""
    label: str
    path: Path
    name: str
    """What our division draws its part from: the file's own name, or its path in a list."""
    group: str = ""
    """What it belongs to, such as a patient; empty: to nothing else."""

    @property
    def unit(self) -> str:
        """What may not be torn apart: its group, or the picture by itself."""
        return self.group or f"{self.position} by itself"
