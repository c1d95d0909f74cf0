"""What the machine has counted: bytes on the loopback, processor time and memory of each role."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
ROLE = "FEDERATION_ROLE"
COORDINATOR = "coordinator"
SITE = "site"
OPERATOR = "operator"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Moment:
    """All counters at one point in time."""

    at: float
    wire_bytes: int
    cpu_seconds: dict[str, float]


@dataclass
class Memory:
    """What the coordinator's processes took at most, each and together."""

    together: int = 0
    threads: int = 0
    each: dict[str, int] = field(default_factory=dict)

    def note(self, sizes: list[_Size]) -> None:
        """Keep the peaks of what was seen at one moment."""
        self.together = max(self.together, sum(size.now for size in sizes))
        self.threads = max(self.threads, sum(size.threads for size in sizes))
        for size in sizes:
            self.each[size.name] = max(self.each.get(size.name, 0), size.peak)


@dataclass(frozen=True)
class _Size:
    """Resident bytes of one process, now and at most since it started."""

    name: str
    now: int
    peak: int
    threads: int


@dataclass(frozen=True)
class _Process:
    """A line of the kernel's table. Time of ended children is in it once their parent has asked after them."""

    pid: int
    parent: int
    started: int
    cpu_seconds: float

    @classmethod
    def read(cls, folder: Path) -> _Process:
        words = (folder / "stat").read_text().rpartition(")")[2].split()
        spent = sum(map(int, words[11:15]))
        return cls(int(folder.name), int(words[1]), int(words[19]), spent / TICKS)


class Gauges:
    """Reads the counters of all processes in this corner of the machine, by the role they were started in."""

    def __init__(self, wire: Callable[[], int] | None = None) -> None:
        """`wire` counts the bytes that were carried; by itself it is what the loopback has."""
        self.memory, self._read_wire = Memory(), wire or read_wire
        self._roles: dict[tuple[int, int], str] = {}

    def read(self) -> Moment:
        """Look at everything once; the coordinator's memory is noted on the way."""
        at = time.monotonic()
        spent: dict[str, float] = defaultdict(float)
        sizes: list[_Size] = []
        for process in self._list():
            role = self._role_of(process)
            spent[role] += process.cpu_seconds
            if role == COORDINATOR:
                sizes += _read_memory(process.pid)
        self.memory.note(sizes)
        return Moment(at, self._read_wire(), dict(spent))

    def _list(self) -> list[_Process]:
        found = []
        for folder in PROC.iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    found.append(_Process.read(folder))
                except OSError:
                    continue  # it ended while we looked
        return sorted(found, key=lambda process: process.started)

    def _role_of(self, process: _Process) -> str:
        key = (process.pid, process.started)
        if key not in self._roles:
            self._roles[key] = _read_role(process.pid) or self._role_of_parent(process)
        return self._roles[key]

    def _role_of_parent(self, process: _Process) -> str:
        latest = max((key for key in self._roles if key[0] == process.parent), default=None)
        return OPERATOR if latest is None else self._roles[latest]


def read_wire() -> int:
    """Bytes the loopback has carried, headers included; each packet counts once."""
    lines = (PROC / "self" / "net" / "dev").read_text().splitlines()
    counters = next(line.partition(":")[2] for line in lines if line.strip().startswith("lo:"))
    return int(counters.split()[0])


def _read_role(pid: int) -> str | None:
    try:
        words = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{ROLE}=".encode()
    return next((word.removeprefix(prefix).decode() for word in words if word.startswith(prefix)), None)


def _read_memory(pid: int) -> list[_Size]:
    """One size, or none if the process has ended."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
        name = _name_of(pid)
    except OSError:
        return []
    told = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in told:
        return []  # it waits for its parent to ask after it
    now, peak = (int(told[word].split()[0]) * 1024 for word in ("VmRSS", "VmHWM"))
    return [_Size(name, now, peak, int(told["Threads"]))]


def _name_of(pid: int) -> str:
    words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return Path(words[1] if "python" in words[0] and len(words) > 2 else words[0]).name
