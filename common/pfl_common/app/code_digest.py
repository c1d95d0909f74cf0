"""A digest of this product's own source files: runs of different code may differ although all else is equal."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("pfl_common", "pfl_server", "pfl_client")
"""All that decides a run's bytes; the hand tool only starts what is in these."""


@cache
def digest() -> str:
    """The SHA-256 of names and contents of all Python files of the product, found but not imported."""
    return digest_of(*(folder for name in PACKAGES for folder in _folders(name)))


def digest_of(*packages: Path) -> str:
    """The SHA-256 of names and contents of the Python files in these folders, wherever the folders lie."""
    total = hashlib.sha256()
    for package in packages:
        for file in sorted(package.rglob("*.py")):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{package.name}/{file.relative_to(package).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _folders(name: str) -> list[Path]:
    found = find_spec(name)
    return [Path(place) for place in (found.submodule_search_locations or ())] if found else []
