"""Recognises what a path is: a data folder, a coordinator's state, the state of sites, an invitation, a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

Thing: TypeAlias = Literal[
    "data folder", "invitation", "coordinator's state", "sites' state", "site's folder", "policy", "nothing"
]


def recognise(path: Path) -> Thing:
    """By what lies in it; a folder that is no state is taken for data, which says itself what is wrong with it."""
    if not path.exists():
        return "nothing"
    if path.is_file():
        if path.suffix == ".toml":
            return "policy"
        return "invitation" if path.suffix not in (".npz", ".csv", ".parquet", ".jsonl") else "data folder"
    if (path / "federation").is_dir() or ((path / "runs").is_dir() and not (path / "keys").is_dir()):
        return "coordinator's state"
    if (path / "keys").is_dir():
        return "site's folder"
    return "sites' state" if any((site / "keys").is_dir() for site in path.glob("*/*")) else "data folder"
