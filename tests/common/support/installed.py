"""Packages as an installer leaves them: metadata, entry points, modules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    place: Path,
    package: str,
    version: str = "1.0",
    *,
    points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str] | None = None,
) -> None:
    """Put a package into a folder that is searched for modules."""
    about = place / f"{package.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in own.items())])
        for group, own in points.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(groups) + "\n")
    for name, text in (modules or {}).items():
        (place / f"{name}.py").write_text(text)
