"""Plays the runs of a comparison, several at once, each in its own process; runs with a kept result are skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias  # plain values on their way to JSON

from pfl_common.spec.run import Json
from pfl_deploy.comparison.kept import Kept
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import CHOOSING_SEED, Trial
from pfl_deploy.comparison.progress import Progress
from pfl_deploy.comparison.worker import play

Play: TypeAlias = Callable[[Mapping[str, Any], str], Outcome]


class Trials:
    """Plays trials. A run's result follows from its settings, data and code alone, so a kept one is as good as new."""

    def __init__(  # noqa: PLR0913  # what all runs share, and where each result goes
        self,
        common: Mapping[str, Json],
        data: Path,
        *,
        kept: Kept,
        progress: Progress,
        hold_out: float = 0.0,
        play: Play = play,
    ) -> None:
        self._common, self._data, self._hold_out = common, data, hold_out
        self._kept, self._progress, self._play = kept, progress, play
        self.served = 0
        """How many results were taken from the file."""

    def run(self, trials: Sequence[Trial], *, jobs: int) -> list[Outcome]:
        """All results in the order of the trials."""
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(self._one, trials))

    def _one(self, trial: Trial) -> Outcome:
        server = trial.server(self._common)
        outcome, seconds = self._kept.find(server), None
        if outcome is not None:
            self.served += 1
        else:
            self._progress.begin(trial)
            began = perf_counter()
            request = {"server": server, "data": str(self._data), "hold_out": self._hold_out}
            # Nobody is led by test data that no choosing run has read.
            request |= {"blind": True} if trial.seed == CHOOSING_SEED else {}
            outcome = self._play(request, trial.contestant.name)
            seconds = perf_counter() - began
            self._kept.add(server, outcome)
        self._progress.end(trial, outcome, seconds)
        return outcome
