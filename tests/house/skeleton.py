"""A copy of the house with empty rooms: real settings, every module a contract names, not a line in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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
# Modules that no contract names but that a violation needs as a neighbour.
NEIGHBOURS = (
    "pfl_common.methods.first",
    "pfl_common.methods.second",
    "pfl_common.learning.between",
    "pfl_common.randomness.generators",
    "pfl_common.wire.coordinator_pb2",
    "pfl_client.daemon.loop",
    "pfl_client.trainer.loop",
    "pfl_server.run.training",
)


def is_folder(module: str) -> bool:
    """Whether a module of the real house is a package; one that is only planted is a file."""
    return (TOP / PACKAGES[module.split(".")[0]] / Path(*module.split("."))).is_dir()


def read_settings() -> dict[str, Any]:  # parsed TOML has no narrower type
    """What pyproject.toml says."""
    return tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))


def list_contracts() -> list[dict[str, Any]]:  # parsed TOML has no narrower type
    """The import contracts, as they stand in pyproject.toml."""
    contracts: list[dict[str, Any]] = read_settings()["tool"]["importlinter"]["contracts"]
    return contracts


def name_modules() -> set[str]:
    """Every folder and module of ours that a contract names, and the neighbours."""
    named = {name for contract in list_contracts() for name in _named_in(contract)}
    ours = {name for name in named if name.split(".")[0] in PACKAGES and "*" not in name}
    return ours | set(PACKAGES) | set(NEIGHBOURS)


def _named_in(contract: dict[str, Any]) -> Iterator[str]:
    for container in contract.get("containers", [""]):
        for key, words in contract.items():
            if isinstance(words, list):
                for entry in words:
                    for part in entry.split("|"):
                        inside = container and key == "layers"
                        yield f"{container}.{part.strip()}" if inside else part.strip()


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
            for folder in path.parents[: len(name.split(".")) - 1]:
                (folder / "__init__.py").touch()
        # A rule about a foreign package that nobody imports is an error.
        self.plant("pfl_client.trainer.loop", 'import zmq\n\n__all__ = ["zmq"]\n')

    def file_of(self, module: str) -> Path:
        """Where a module's text lies."""
        path = self.top / PACKAGES[module.split(".")[0]] / Path(*module.split("."))
        return path / "__init__.py" if is_folder(module) else path.with_suffix(".py")

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
