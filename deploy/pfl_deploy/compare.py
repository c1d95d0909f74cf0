"""`pfl compare`: several methods on one federation, settings chosen on validation data, mean and deviation over seeds.

A comparison is a TOML file: what all runs share, then one table per contestant with fixed settings and, under
`try`, the values to choose from. Choosing looks at validation accuracy alone; test data are read once, at the end.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from pfl_common.config import settle
from pfl_common.errors import DataError, RunFailed, SettingError, StateError, UserError
from pfl_common.run import Json
from pfl_deploy.simulate import find_sites, simulate
from pfl_server.settings import ServerSettings

Tell: TypeAlias = Callable[[str], None]
CHOOSING_SEED = 1000
"""Settings are chosen with a seed that no reported run uses."""
_MENDABLE = {kind.exit_code: kind for kind in (SettingError, DataError, StateError)}
"""What a worker found that a person can mend, by its exit code."""


@dataclass(frozen=True)
class Contestant:
    """A method with its fixed settings and those to be chosen."""

    name: str
    method: str
    encoder_projector: bool = False
    set: dict[str, Json] = field(default_factory=dict)
    choose: dict[str, list[Json]] = field(default_factory=dict)

    def candidates(self) -> Iterator[dict[str, Json]]:
        """Every combination of the values to choose from."""
        names = sorted(self.choose)
        for values in itertools.product(*(self.choose[name] for name in names)):
            yield {**self.set, **dict(zip(names, values, strict=True))}


@dataclass(frozen=True)
class Comparison:
    """What is compared, and under which common conditions."""

    rounds: int
    choosing_rounds: int
    seeds: tuple[int, ...]
    common: dict[str, Json]
    contestants: tuple[Contestant, ...]

    @classmethod
    def read(cls, file: Path) -> Comparison:
        """Read and check a comparison's file."""
        try:
            plan = tomllib.loads(file.read_text())
            contestants = tuple(
                Contestant(
                    name,
                    table["method"],
                    table.get("encoder_projector", False),
                    table.get("set", {}),
                    table.get("try", {}),
                )
                for name, table in plan["contestants"].items()
            )
            return cls(
                plan["rounds"],
                plan["choosing_rounds"],
                tuple(plan["seeds"]),
                plan.get("common", {}),
                contestants,
            )
        except OSError as error:
            raise SettingError(
                f"the comparison {file} cannot be read: {error.strerror}", expected="a TOML file"
            ) from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SettingError(
                f"{file} is no comparison: {error}",
                expected="rounds, choosing_rounds, seeds, [contestants.NAME]",
            ) from None


@dataclass(frozen=True)
class Trial:
    """One simulated run."""

    contestant: Contestant
    settings: dict[str, Json]
    seed: int
    rounds: int

    def request(self, common: Mapping[str, Json], data: Path) -> str:
        """What a worker process is told."""
        server = {
            **common,
            "method": self.contestant.method,
            "encoder_projector": self.contestant.encoder_projector,
            "rounds": self.rounds,
            "seed": self.seed,
            "set": self.settings,
        }
        return json.dumps({"server": server, "data": str(data)})


Accuracies: TypeAlias = dict[str, dict[str, float]]
"""By split, then by site."""


class Trials:
    """Runs trials, each in a process of its own; what is finished is kept, so that a comparison can be broken off.

    A run's result follows from its specification alone, so a kept result is as good as a new one.
    """

    def __init__(self, common: Mapping[str, Json], data: Path, *, kept: Path | None, tell: Tell) -> None:
        self._common, self._data, self._kept, self._tell = common, data, kept, tell
        self._known: dict[str, Accuracies] = {}
        self._writing = threading.Lock()
        if kept is not None and kept.exists():
            lines = [json.loads(line) for line in kept.read_text().splitlines()]
            self._known = {line["request"]: line["result"] for line in lines}

    def run(self, trials: Sequence[Trial], *, jobs: int) -> list[Accuracies]:
        """All results in the order of the trials, some at one time."""
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(self._one, trials))

    def _one(self, trial: Trial) -> Accuracies:
        request = trial.request(self._common, self._data)
        if request not in self._known:
            self._keep(request, _play(trial, request))
        result = self._known[request]
        means = {split: round(statistics.fmean(sites.values()), 4) for split, sites in result.items()}
        # Test accuracies of trials that only choose settings are not shown: nobody shall be led by them.
        shown = {"validation": means["validation"]} if trial.seed == CHOOSING_SEED else means
        self._tell(f"{trial.contestant.name} seed {trial.seed} {trial.settings} {shown}")
        return result

    def _keep(self, request: str, result: Accuracies) -> None:
        with self._writing:
            self._known[request] = result
            if self._kept is not None:
                with self._kept.open("a") as book:
                    book.write(json.dumps({"request": request, "result": result}) + "\n")


def compare(plan: Comparison, runner: Trials, *, jobs: int) -> dict[str, Json]:
    """Choose settings, run every seed, and give the table as plain values."""
    chosen = _choose(plan, runner, jobs)
    trials = [Trial(c, chosen[c.name], seed, plan.rounds) for c in plan.contestants for seed in plan.seeds]
    results = runner.run(trials, jobs=jobs)
    table: dict[str, Json] = {}
    for contestant in plan.contestants:
        of = [r["test"] for t, r in zip(trials, results, strict=True) if t.contestant is contestant]
        table[contestant.name] = {"settings": chosen[contestant.name], "test": _spread(of)}
    return table


def _choose(plan: Comparison, runner: Trials, jobs: int) -> dict[str, dict[str, Json]]:
    """The settings with the best mean validation accuracy over sites; ties go to the first named."""
    fixed = {c.name: next(c.candidates()) for c in plan.contestants if not c.choose}
    trials = [
        Trial(contestant, settings, CHOOSING_SEED, plan.choosing_rounds)
        for contestant in plan.contestants
        if contestant.choose
        for settings in contestant.candidates()
    ]
    best: dict[str, tuple[float, dict[str, Json]]] = {}
    for trial, result in zip(trials, runner.run(trials, jobs=jobs), strict=True):
        value = statistics.fmean(result["validation"].values())
        if value > best.get(trial.contestant.name, (-1.0, {}))[0]:
            best[trial.contestant.name] = (value, trial.settings)
    return {**fixed, **{name: settings for name, (_, settings) in best.items()}}


def _play(trial: Trial, request: str) -> Accuracies:
    """A process for each run: torch's threads and generator belong to a process."""
    command = [sys.executable, "-m", "pfl_deploy.compare"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    name = trial.contestant.name
    if done.returncode:
        kind = _MENDABLE.get(done.returncode)
        if kind is None or not done.stdout:
            raise RunFailed(f"{name} with {trial.settings}: {done.stderr.strip()[-2000:]}")
        words = json.loads(done.stdout)
        raise kind(f"{name}: {words['seen']}", expected=words["expected"], advice=words["advice"])
    result: Accuracies = json.loads(done.stdout)
    return result


def _spread(runs: Sequence[Mapping[str, float]]) -> dict[str, Json]:
    """Mean and deviation over seeds, per site and over all sites."""
    sites = sorted(runs[0])
    columns = {site: [run[site] for run in runs] for site in sites}
    columns["mean"] = [statistics.fmean(run.values()) for run in runs]
    return {
        name: {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else 0.0}
        for name, values in columns.items()
    }


def run_request(request: str) -> Accuracies:
    """The worker: one simulation, its accuracies after the last round."""
    asked = json.loads(request)
    folders = find_sites(Path(asked["data"]))
    with tempfile.TemporaryDirectory(prefix="pfl-compare-", dir=_memory()) as scratch:
        # Every site counts in every round: which do must not depend on how busy the machine is.
        given = {
            "quorum": 1.0,
            **asked["server"],
            "sites": len(folders),
            "state": Path(scratch) / "coordinator",
        }
        settings = settle(ServerSettings, given, what="compare")
        curves = simulate(settings, folders, Path(scratch) / "sites").curves()
        return {
            split: {site: curve.last(f"pre/{split}/combined") for site, curve in curves.items()}
            for split in ("validation", "test")
        }


def check_place(file: Path | None, option: str) -> None:
    """A result that has no place to lie is known before hours of training."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        seen = "a folder" if file.is_dir() else f"below {file.parent}, which is no folder"
        raise SettingError(f"{option} {file} is {seen}", expected="a file in a folder that is there")


def answer(request: str) -> int:
    """The worker's process: the result, or words about what a person can mend; gives the exit code."""
    try:
        sys.stdout.write(json.dumps(run_request(request)))
    except UserError as error:
        sys.stdout.write(json.dumps({"seen": error.seen, "expected": error.expected, "advice": error.advice}))
        return error.exit_code
    return 0


def _memory() -> Path | None:
    """A folder in memory where there is one: these runs are thrown away, and syncing each round costs more than
    training it (on a busy disk a run used a third of its core, in memory all of it)."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else None


if __name__ == "__main__":
    from pfl_common.logs import configure

    configure(level="warning")
    raise SystemExit(answer(sys.stdin.read()))
