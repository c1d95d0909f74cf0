"""A federation of real processes on this machine: nothing is shared with the test but files."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PROGRAMS = {
    "pfl-server": "from pfl_server.cli import main; main()",
    "pfl-client": "from pfl_client.cli import main; main()",
    "pfl": "from pfl_deploy.cli import main; main()",
}


def write_site(
    folder: Path, *, samples: int, classes: Sequence[str] = ("a", "b", "c"), size: int = 16, seed: int = 0
) -> Path:
    """A data folder of small grey images, learnable: each class is bright in a place of its own."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for part, count in (("train", samples), ("test", samples // 2)):
        y = np.arange(count) % len(classes)
        x = rng.integers(0, 80, (count, size, size))
        for place, label in enumerate(y):
            x[place, label * 4 : label * 4 + 4, :] += 120
        np.savez(folder / f"{part}.npz", x=x.astype(np.uint8), y=y.astype(np.int64))
    (folder / "classes.json").write_text(json.dumps(list(classes)))
    return folder


@dataclass
class Machine:
    """One user's machine: a state directory of its own and the processes started there."""

    home: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, program: str, *words: str | Path, log: str) -> subprocess.Popen[bytes]:
        """Start a program; what it says goes to a file."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / f"{log}.log").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAMS[program], *map(str, words)],
                stdout=out,
                stderr=out,
                cwd=self.home,
                env=self.environment,
            )
        self.running.append(process)
        return process

    def call(self, program: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end."""
        self.home.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", PROGRAMS[program], *map(str, words)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.home,
            env=self.environment,
            timeout=90,
            check=False,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """The test's own, less anything that would set up a program from outside."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PFL_")}
        return kept | {"XDG_STATE_HOME": str(self.home / "state"), "PYTHONUNBUFFERED": "1"}

    def server(self, *words: str | Path, log: str = "server") -> subprocess.Popen[bytes]:
        """Start a coordinator on free ports and wait until sites can find it."""
        free = ("--port", "0", "--enrol-port", "0", "--http-port", "0")
        # Tests have two or three sites and look at their means; whoever tests what is hidden says another number.
        process = self.start("pfl-server", *free, "--fewest-reporters", "1", *words, log=log)
        # Its own file: one that was killed before has left one too, until somebody looks who finds it dead.
        self.wait_for(lambda: (self.discovery() or {}).get("pid") == process.pid, process, log)
        return process

    def client(self, data: Path, *words: str | Path) -> subprocess.Popen[bytes]:
        """Start a site."""
        return self.start("pfl-client", "--data", data, *words, log=data.name)

    def discovery(self) -> "dict[str, Any] | None":
        """The file the coordinator leaves for this user; its fields are of any type."""
        found = list((self.home / "state" / "pfl" / "coordinators").glob("*.json"))
        try:
            return json.loads(found[0].read_text()) if found else None
        except FileNotFoundError:
            return None

    def read(self, url: str, *, accept: str = "*/*") -> str:
        """Fetch a page of a program's health port."""
        asked = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(asked, timeout=10) as page:
            return str(page.read().decode())

    def said(self, log: str) -> str:
        """What a program has said so far."""
        return (self.home / f"{log}.log").read_text()

    def wait_for(
        self, event: "object", process: subprocess.Popen[bytes], log: str, *, seconds: float = 60
    ) -> None:
        """Wait for something to become true while a process lives."""
        end = time.monotonic() + seconds
        while not event():  # type: ignore[operator]
            assert process.poll() is None, f"{log} ended with {process.returncode}:\n{self.said(log)}"
            assert time.monotonic() < end, f"{log} took too long:\n{self.said(log)}"
            _pause()

    def finish(self, process: subprocess.Popen[bytes], *, log: str, seconds: float = 90) -> int:
        """Wait for a process to end by itself."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{log} did not end:\n{self.said(log)}") from None

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM, as a service manager would."""
        process.send_signal(signal.SIGTERM)
        return process.wait(30)

    def end_all(self) -> None:
        """Whatever still runs is ended by its id."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait(10)


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """Whom a process has started, by their ids; only Linux tells."""
    threads = Path(f"/proc/{process.pid}/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


def _pause() -> None:
    # Not a synchronisation: the loop around it waits for the event and asserts on its own deadline.
    import threading

    threading.Event().wait(0.05)
