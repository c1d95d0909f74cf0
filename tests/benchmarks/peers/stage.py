"""Where a peer is put up: its processes, what they wrote, and the marks its coordinator sends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.benchmarks.peers.gauges import OPERATOR, ROLE, SITE, Gauges, Moment

LOOK_EVERY = 0.2
LONGEST_START = 300.0
LONGEST_ROUND = 600.0
PATIENCE_AT_END = 10.0
LAST_LINES = 25
LARGEST_ERROR = 1e-3


Word = dict[str, Any]  # whatever the peer's coordinator has put into its mark


def nothing_before(site: int) -> list[str]:
    """All sites run where the coordinator does."""
    return []


class PeerFailed(RuntimeError):
    """A peer did not do what was asked of it; its last words are in the message."""


@dataclass
class Stage:
    """The processes of one federation, ended by their ids however the measurement ends."""

    folder: Path
    environment: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    gauges: Gauges = field(default_factory=Gauges)
    before: Callable[[int], list[str]] = nothing_before
    """What stands before the command of a site, by its number: where it is to run."""

    def __post_init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._questions: dict[str, Sequence[str | Path]] = {}
        self._marks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> Stage:
        for name in ("home", "logs"):
            (self.folder / name).mkdir()
        self._marks.bind(str(self.marks))
        self._marks.settimeout(LOOK_EVERY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (signal.SIGTERM, signal.SIGKILL):
            left = [process for process in self._running.values() if process.poll() is None]
            for process in left:
                process.send_signal(end)
            _wait_for_all(left)
        self._marks.close()

    @property
    def marks(self) -> Path:
        """The socket on which the peer's coordinator says that a round begins."""
        return self.folder / "marks"

    def start_site(self, number: int, name: str, command: Sequence[str | Path]) -> None:
        """Start a site, the first of which has the number 0."""
        self.start(name, SITE, [*self.before(number), *command])

    def start(self, name: str, role: str, command: Sequence[str | Path]) -> None:
        """Start a program that stays; what it says goes to a file."""
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._surroundings(role),
            )

    def call(self, name: str, command: Sequence[str | Path], *, seconds: float = 180) -> str:
        """Run an operator's command to its end and return what it printed."""
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._surroundings(OPERATOR),
            timeout=seconds,
            check=False,
        )
        self._log(name).write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise PeerFailed(f"{name} ended with {done.returncode}:\n{self.last_words()}")
        return done.stdout

    def ask_on_failure(self, name: str, command: Sequence[str | Path]) -> None:
        """An operator's command that brings out why a run failed."""
        self._questions[name] = command

    def wait_until(self, happened: Callable[[], bool], what: str, *, seconds: float = LONGEST_START) -> None:
        """Wait for something the peer does; a process that ends meanwhile is a failure."""
        deadline = time.monotonic() + seconds
        while not happened():
            self._expect_life(deadline, what)
            if self._hear():
                raise self._fail(f"a round began before {what}")

    def measure(self, *, rounds: int, sites: int) -> list[Moment]:
        """The counters at the beginning of each round and at the end of the last."""
        moments: list[Moment] = []
        deadline = time.monotonic() + LONGEST_START
        word: Word = {}
        while word.get("mark") != "end":
            self._expect_life(deadline, f"mark {len(moments)} of {rounds}")
            word = self._hear()
            seen = self.gauges.read()
            if word:
                moments.append(Moment(word["at"], seen.wire_bytes, seen.cpu_seconds))
                deadline = word["at"] + LONGEST_ROUND
        self._check(word, rounds=rounds, sites=sites)
        return moments

    def log_says(self, name: str, words: str) -> bool:
        """Whether a program has said something by now."""
        return words in self._log(name).read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        """The end of each log, for the person who has to find out why."""
        told = []
        for log in sorted((self.folder / "logs").iterdir()):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            told += [f"--- {log.name}", *lines[-LAST_LINES:]]
        return "\n".join(told)

    def _hear(self) -> Word:
        try:
            word: Word = json.loads(self._marks.recv(4096))
        except TimeoutError:
            return {}
        if word["mark"] == "failed":
            raise self._fail(word["reason"])
        return word

    def _check(self, word: Word, *, rounds: int, sites: int) -> None:
        """All sites were in all rounds, and the one number moved by one in each."""
        if word["answers"] != [sites] * rounds:
            raise self._fail(
                f"answers came from {word['answers']} sites, expected {sites} in {rounds} rounds"
            )
        if abs(word["change"] - rounds) > LARGEST_ERROR:
            raise self._fail(f"the number moved by {word['change']}, expected {rounds}")

    def _expect_life(self, deadline: float, what: str) -> None:
        for name, process in self._running.items():
            if process.poll():
                raise self._fail(f"{name} ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise self._fail(f"waited in vain for {what}")

    def _fail(self, what: str) -> PeerFailed:
        for name, command in self._questions.items():
            with contextlib.suppress(PeerFailed, subprocess.TimeoutExpired):
                self.call(name, command, seconds=30)
        return PeerFailed(f"{what}:\n{self.last_words()}")

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _surroundings(self, role: str) -> dict[str, str]:
        """Nothing of the caller's settings but the path to common commands; a home of its own."""
        commands = f"{self.environment / 'bin'}:{os.defpath}:/usr/sbin:/sbin"
        return {
            "PATH": commands,
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            ROLE: role,
            **self.settings,
        }


def _wait_for_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + PATIENCE_AT_END
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue  # the harder signal is next
