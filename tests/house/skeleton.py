"""A copy of the house with empty rooms: real settings, every module a contract names, not a line in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[2]
PACKAGES = {
    "pfl_common": "common",
    "pfl_server": "server",
    "pfl_client": "client",
    "pfl_deploy": "deploy",
}
FOLDERS = {
    *PACKAGES,
    "pfl_client.data",
    "pfl_client.trainer",
    "pfl_common.identity",
    "pfl_common.learning",
    "pfl_common.methods",
    "pfl_common.models",
    "pfl_common.wire",
}
# Modules that no contract names but that a violation needs as a neighbour.
NEIGHBOURS = (
    "pfl_common.methods.first",
    "pfl_common.methods.second",
    "pfl_common.between",
    "pfl_server.training",
)


def read_settings() -> dict[str, Any]:  # parsed TOML has no narrower type
    """What pyproject.toml says."""
    return tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))


def list_contracts() -> list[dict[str, Any]]:  # parsed TOML has no narrower type
    """The import contracts, as they stand in pyproject.toml."""
    contracts: list[dict[str, Any]] = read_settings()["tool"]["importlinter"]["contracts"]
    return contracts


def name_modules() -> set[str]:
    """Every module of ours that a contract names, and the neighbours."""
    named = {
        part.strip()
        for contract in list_contracts()
        for words in contract.values()
        if isinstance(words, list)
        for entry in words
        for part in entry.split("|")
    }
    ours = {name for name in named if name.split(".")[0] in PACKAGES and "*" not in name}
    return ours | set(PACKAGES) | set(NEIGHBOURS)


@dataclass(frozen=True)
class Skeleton:
    """The empty house in a folder of its own; `plant` a line, then ask a tool what it thinks of it."""

    top: Path

    def build(self) -> None:
        """Copy the settings and lay out every module, empty."""
        shutil.copy(TOP / "pyproject.toml", self.top)
        for name in name_modules():
            path = self.file_of(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def file_of(self, module: str) -> Path:
        """Where a module's text lies."""
        path = self.top / PACKAGES[module.split(".")[0]] / Path(*module.split("."))
        return path / "__init__.py" if module in FOLDERS else path.with_suffix(".py")

    def plant(self, module: str, text: str) -> None:
        """Write into one module."""
        self.file_of(module).write_text(text, encoding="utf-8")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a tool of our environment in the skeleton, which it sees before the real packages."""
        rooms = os.pathsep.join(str(self.top / room) for room in PACKAGES.values())
        return subprocess.run(
            [str(Path(sys.executable).parent / command[0]), *command[1:]],
            cwd=self.top,
            env={**os.environ, "PYTHONPATH": rooms, "COLUMNS": "200", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
