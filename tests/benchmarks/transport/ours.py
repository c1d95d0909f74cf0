"""The real programs under a workload: `pfl-server` and its sites as separate processes, everything on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tests.benchmarks.transport.observing import Log, Memory, Observer, Track, moment
from tests.benchmarks.transport.workload import Workload
from tests.deploy.support.processes import PROGRAMS, Machine

HERE = Path(__file__).parent
IDLE_SECONDS = 0.5
PER_PROCESS = 125
"""Light sites in one process."""
LOG = ("--log-format", "json")
STACKS = "BENCHMARK_STACKS"
"""Names the folder for sampled stacks; see `start/stacks.py`."""
COSTS = "BENCHMARK_COSTS"
"""Names the folder for what each process counts of its work; see `start/costs.py`."""


Before: TypeAlias = Callable[[str], list[str]]
"""What stands before a program's command, by the program's name: where it is to run."""


def nothing_before(program: str) -> list[str]:
    """All programs run where this one does."""
    return []


class BenchmarkFailed(Exception):
    """A program ended or took too long; its last words are in the message."""


@dataclass
class Recording:
    """One federation as it was seen from outside."""

    workload: Workload
    server: Track
    daemons: list[Track]
    ready_seconds: float
    """From the start of `pfl-server` to the first good answer of /readyz."""
    began: float
    """When the first site was started: what the coordinator held until then is its idle memory."""
    begun_seconds: float = 0.0
    """From the start of the last `pfl-client` to its first task."""
    idle: tuple[float, float] = (0.0, 0.0)
    commits: list[float] = field(default_factory=list)
    """When each round that counts was committed; the first entry ends the round that is left out."""
    wire: list[int] = field(default_factory=list)
    """Bytes the interface carried from commit to commit."""
    killed_round_seconds: float = 0.0
    after_kill_seconds: float = 0.0
    """The round after that one, which still has the dead site on its list."""
    killed_counted: tuple[int, int] = (0, 0)
    """Sites counted and lost in the round of the kill."""
    killed_in_task: bool = False

    @property
    def rounds(self) -> list[float]:
        """Seconds from commit to commit: nothing a round costs can hide between two rounds."""
        return [b - a for a, b in pairwise(self.commits)]

    @property
    def server_idle(self) -> Memory:
        """The coordinator before the first site came."""
        return self.server.between(0, self.began)[-1]

    def server_peak(self, start: float = 0.0) -> int:
        """Most anonymous memory of the coordinator above its idle, from a moment to the last round that counts."""
        seen = self.server.between(start, self.commits[-1])
        return max(sample.anonymous for sample in seen) - self.server_idle.anonymous


@dataclass
class Federation(Machine):
    """A machine on which the synthetic method is known, and whose processes end with the block."""

    sampled: bool = False
    """Whether the programs' stacks may be sampled, if somebody has asked for that."""
    before: Before = nothing_before

    @property
    def environment(self) -> Mapping[str, str]:
        """The user's own, with a start file that every interpreter reads; no BLAS threads are set for the programs."""
        looked_into = (STACKS, COSTS)
        before = {
            name: word
            for name, word in super().environment.items()
            if self.sampled or name not in looked_into
        }
        path = [str(HERE / "start"), *filter(None, [before.get("PYTHONPATH")])]
        return {**before, "PYTHONPATH": os.pathsep.join(path)}

    def __enter__(self) -> Federation:
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """First politely and all at once, then not: state folders are thrown away with the machine."""
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + 10
        for process in self.running:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def launch(self, log: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a Python program by its arguments."""
        with (self.home / f"{log}.log").open("wb") as out:
            process = subprocess.Popen(
                [*self.before(log), sys.executable, *map(str, command)],
                stdout=out,
                stderr=out,
                cwd=self.home,
                env=self.environment,
            )
        self.running.append(process)
        return process

    def log(self, name: str) -> Log:
        """What a program says."""
        return Log(self.home / f"{name}.log")

    def wait_until(
        self, event: Callable[[], object], what: str, *, seconds: float, poll: float = 0.02
    ) -> None:
        """Wait while no process fails."""
        end, pause = time.monotonic() + seconds, threading.Event()
        while not event():
            gone = [p for p in self.running if p.poll() not in (None, 0)]
            late = time.monotonic() > end
            if late or gone:
                why = f"did not happen within {seconds:.0f} s" if late else f"cannot happen: {gone[0].args}"
                raise BenchmarkFailed(f"{what} {why}\n{self._last_words()}")
            pause.wait(poll)

    def _last_words(self) -> str:
        logs = sorted(self.home.glob("*.log"), key=lambda path: path.stat().st_mtime)[-3:]
        return "\n".join(f"--- {path.name}\n{Log(path).ending()}" for path in logs)


def play(workload: Workload, home: Path, *, before: Before = nothing_before) -> Recording:
    """Play a workload to the end of its rounds and look on."""
    observer = Observer()
    with Federation(home, sampled=True, before=before) as federation:
        observer.start()
        try:
            return _Play(federation, workload, observer).run()
        finally:
            observer.stop()


class _Play:
    """The steps of one recording."""

    def __init__(self, federation: Federation, workload: Workload, observer: Observer) -> None:
        self._federation, self._workload, self._observer = federation, workload, observer
        self._sites: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> Recording:
        federation, workload = self._federation, self._workload
        ready = self._start_server()
        began = time.time()
        idle = self._start_sites()
        self._log = federation.log("server")
        self._await_commits(workload.rounds + 1)
        recording = Recording(
            workload,
            server=self._observer.tracks["server"],
            daemons=[t for name, t in self._observer.tracks.items() if name != "server"],
            ready_seconds=ready,
            began=began,
            idle=idle,
        )
        if workload.kill:
            self._kill(recording)
        closed = self._log.find("round closed")
        recording.commits = [moment(event) for event in closed[: workload.rounds + 1]]
        recording.begun_seconds = self._first_task()
        # The wire is silent when a round is committed: the last look before is as good as one at that moment.
        counts = [self._observer.wire_at(at) for at in recording.commits]
        recording.wire = [b - a for a, b in pairwise(counts)]
        return recording

    def _start_server(self) -> float:
        free = ("--port", "0", "--enrol-port", "0", "--http-port", "0")
        started = time.monotonic()
        words = (*free, *LOG, *self._workload.words())
        process = self._federation.launch("server", "-c", PROGRAMS["pfl-server"], *words)
        self._observer.watch("server", process.pid)
        self._federation.wait_until(self._is_ready, "the coordinator's readiness", seconds=120, poll=0.01)
        seconds = time.monotonic() - started
        threading.Event().wait(0.3)  # a few samples of the idle coordinator
        return seconds

    def _is_ready(self) -> bool:
        found = self._federation.discovery()
        if found is None:
            return False
        try:
            return self._federation.read(found["http"] + "/readyz").startswith("ready")
        except urllib.error.URLError:
            return False

    def _start_sites(self) -> tuple[float, float]:
        if self._workload.light:
            self._start_light()
            return (0.0, 0.0)
        names = [f"site_{number:03d}" for number in range(self._workload.sites)]
        folders = [write_data(self._federation.home / "data" / name) for name in names]
        idle = (0.0, 0.0)
        for folder in folders:
            self._start_site(folder)
            if self._workload.watch_idle and len(self._sites) == 1 and len(folders) > 1:
                idle = self._look_at_idle_site()
        return idle

    def _start_site(self, folder: Path) -> None:
        self._last = folder.name, time.time()
        words = ("--data", folder, *LOG)
        process = self._federation.launch(folder.name, "-c", PROGRAMS["pfl-client"], *words)
        self._sites[folder.name] = process
        if self._workload.watch_idle:
            self._observer.watch(folder.name, process.pid)

    def _look_at_idle_site(self) -> tuple[float, float]:
        """The first site has registered and waits for the others."""
        self._federation.wait_until(lambda: self._status()["sites"], "the first site", seconds=120)
        start = time.time()
        threading.Event().wait(IDLE_SECONDS)
        return start, time.time()

    def _status(self) -> dict[str, list[object]]:
        found = self._federation.discovery() or {}
        request = urllib.request.urlopen(found["http"] + "/status.json", timeout=10)
        with request as page:
            return json.loads(page.read())

    def _start_light(self) -> None:
        for first in range(0, self._workload.sites, PER_PROCESS):
            count = min(PER_PROCESS, self._workload.sites - first)
            words = ("--first", str(first), "--count", str(count))
            self._federation.launch(f"light_{first:04d}", HERE / "light.py", *words)

    def _await_commits(self, count: int) -> None:
        self._federation.wait_until(
            lambda: len(self._log.find("round closed")) >= count,
            f"the end of round {count}",
            seconds=self._workload.patience,
        )

    def _first_task(self) -> float:
        if self._workload.light:
            return 0.0
        name, started = self._last
        return moment(self._federation.log(name).find("task")[0]) - started

    def _kill(self, recording: Recording) -> None:
        """Kill the last site once it has its task of the round after next, in the middle of it."""
        name, _ = self._last
        number = len(self._log.find("round closed")) + 2
        log = self._federation.log(name)
        self._federation.wait_until(
            lambda: log.find("task", kind="train", round=number), f"round {number}", seconds=120, poll=0.003
        )
        threading.Event().wait(self._workload.linger / 2)
        victim = self._sites.pop(name)
        victim.kill()
        victim.wait(10)
        self._federation.running.remove(victim)
        # On a machine that stalls us the kill may come a task later than meant: the log says which round lost a site.
        killed = self._await_loss(number)
        self._await_commits(killed + 1)
        closed = {event["round"]: event for event in self._log.find("round closed")}
        at = {played: moment(event) for played, event in closed.items()}
        recording.killed_round_seconds = at[killed] - at[killed - 1]
        recording.after_kill_seconds = at[killed + 1] - at[killed]
        # The log names who was lost, with the reason, or says 0.
        recording.killed_counted = closed[killed]["counted"], len(closed[killed]["lost"] or ())
        recording.killed_in_task = bool(log.find("task", kind="train", round=killed))

    def _await_loss(self, number: int) -> int:
        """The first round from this one on that lost a site."""

        def lost() -> list[int]:
            closed = self._log.find("round closed")
            return [e["round"] for e in closed if e["lost"] and e["round"] >= number]

        self._federation.wait_until(lost, "a round without the killed site", seconds=self._workload.patience)
        return lost()[0]


def write_data(folder: Path) -> Path:
    """The smallest data a site can have: four numbers a sample, two classes."""
    folder.mkdir(parents=True)
    for part, count in (("train", 4), ("test", 2)):
        y = np.arange(count, dtype=np.int64) % 2
        np.savez(folder / f"{part}.npz", x=np.zeros((count, 4), np.float32), y=y)
    (folder / "classes.json").write_text(json.dumps(["a", "b"]))
    return folder
