"""Containers of the built images, run on this machine's loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.containers_built.images import Builder, Failed

USER = 10001
"""Who the images say they run as."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def private_folder(path: Path) -> Path:
    """A folder of the images' user, as an empty volume becomes one."""
    path.mkdir(parents=True)
    path.chmod(0o700)
    os.chown(path, USER, USER)
    return path


@dataclass
class Box:
    """One container: an image, its volumes, and what it is told by environment."""

    builder: Builder
    image: str
    name: str
    volumes: Mapping[Path, str]
    environment: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def make(self) -> None:
        """Take the image's files."""
        self.builder.call("from", "--name", self.name, self.image)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the image's own program with these words; what it says goes to a file."""
        entry = self.builder.configured(self.image)["Entrypoint"]
        assert isinstance(entry, list)
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                self._run(*entry, *words), stdout=out, stderr=out, start_new_session=True
            )
        self.started.append(process)
        return process

    def call(self, *words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run another program of the image to its end."""
        return subprocess.run(self._run(*words), capture_output=True, text=True, timeout=seconds, check=False)

    def check_health(self) -> bool:
        """Run the image's own health check."""
        check = self.builder.configured(self.image)["Healthcheck"]
        assert isinstance(check, dict)
        return self.call(*check["Test"][1:]).returncode == 0

    @property
    def log(self) -> Path:
        """Where the program's words go."""
        return self.builder.scratch / f"{self.name}.log"

    def said(self) -> str:
        """What the program said last."""
        return "\n".join(self.log.read_text().splitlines()[-25:]) if self.log.exists() else ""

    def wait_for(self, event: Callable[[], bool], what: str, *, seconds: float) -> float:
        """Wait for an event while the program lives; gives how long it took."""
        began = time.monotonic()
        while not event():
            if self.started[-1].poll() is not None:
                raise Failed(f"{self.name} ended before {what}:\n{self.said()}")
            if time.monotonic() - began > seconds:
                raise Failed(f"{self.name}: no {what} within {seconds:.0f} s:\n{self.said()}")
            signal.sigtimedwait([], 0.2)
        return time.monotonic() - began

    def _run(self, *words: str) -> Sequence[str]:
        mounts = [f"--volume={path}:{place}" for path, place in self.volumes.items()]
        # As in compose.yaml: no capability of root, and /tmp in memory.
        bounds = ["--isolation=chroot", "--cap-drop=all", "--mount=type=tmpfs,destination=/tmp"]
        given = [f"--env={name}={value}" for name, value in self.environment.items()]
        return self.builder.command("run", *bounds, *mounts, *given, self.name, "--", *words)


def coordinator_pid(state: Path) -> int:
    """The coordinator's number, as it published it; containers made by chroot have this machine's numbers."""
    (note,) = (state / "pfl" / "coordinators").glob("*.json")
    return int(json.loads(note.read_text())["pid"])


def user_of(pid: int) -> int:
    """Who a process runs as."""
    return os.stat(f"/proc/{pid}").st_uid
