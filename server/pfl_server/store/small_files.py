"""How the coordinator's small files change on disk: at once and lastingly, so that nobody ever finds half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Put a small file in its place: after a power loss the old one is there or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    move(draft, path)


def move(source: Path, target: Path) -> None:
    """Give a file or a folder its name at once, lastingly; both names are in one folder."""
    os.replace(source, target)
    settle(target.parent)


def settle(folder: Path) -> None:
    """Make the names in a folder lasting: what was put there and what was taken away."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
