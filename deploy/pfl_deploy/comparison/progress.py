"""A comparison's progress: a line per run in a log, a live line on a terminal, with an estimate of the time left."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import Trial, say
from pfl_deploy.report import formatting


class Progress:
    """Counts finished and remaining runs. Test accuracies of runs that only choose settings stay hidden, so that nobody
    chooses by them.
    """

    def __init__(self, console: Console, *, runs: int, rounds: int, jobs: int) -> None:
        self._console, self._jobs = console, jobs
        self._runs, self._rounds = runs, rounds
        self._done, self._passed, self._played, self._seconds = 0, 0, 0, 0.0
        self._open: dict[int, str] = {}
        self._lock = threading.Lock()
        self._live = (
            Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, words: str) -> None:
        """Something that happens once."""
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def begin(self, trial: Trial) -> None:
        """A run has started."""
        with self._lock:
            self._open[id(trial)] = _name(trial)
            self._draw()

    def end(self, trial: Trial, outcome: Outcome, seconds: float | None) -> None:
        """A run is over; no seconds: its result was known."""
        with self._lock:
            self._open.pop(id(trial), None)
            self._done += 1
            self._passed += trial.rounds
            if seconds is not None:
                self._played, self._seconds = self._played + trial.rounds, self._seconds + seconds
            took = "from the file" if seconds is None else formatting.duration(seconds)
            self.say(f"{self.count()} {_name(trial)}: {_result(trial, outcome)} ({took}; {self.rest()})")
            self._draw()

    def skip(self, trials: int, rounds: int) -> None:
        """So many runs will not be played after all."""
        self._runs, self._rounds = self._runs - trials, self._rounds - trials * rounds

    def count(self) -> str:
        """Finished runs, out of all."""
        return f"[{self._done}/{self._runs}]"

    def rest(self) -> str:
        """The number of runs left and an estimate of their time, at the speed of the runs so far."""
        left = self._runs - self._done
        if not left:
            return "none left"
        if not self._played:
            return f"{left} left"
        seconds = self._seconds / self._played * (self._rounds - self._passed) / min(self._jobs, left)
        return f"{left} left, about {formatting.duration(seconds)}"

    def _draw(self) -> None:
        if self._live:
            running = "; ".join(self._open.values())
            self._live.update(Text(f"{self.count()} runs done, {self.rest()}. Running: {running or 'none'}"))


def _name(trial: Trial) -> str:
    what = "choosing" if trial.is_choosing else f"seed {trial.seed}"
    varied = say(trial.varied)
    return f"{trial.contestant.name}, {what}" + (f", {varied}" if varied else "")


def _result(trial: Trial, outcome: Outcome) -> str:
    if outcome.failed:
        return f"failed: {outcome.reason}"
    parts = ("validation",) if trial.is_choosing else tuple(outcome.accuracy)
    return ", ".join(f"{part} {100 * outcome.mean(part):.1f}" for part in parts if part in outcome.accuracy)
