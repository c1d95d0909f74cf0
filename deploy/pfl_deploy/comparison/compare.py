"""THE STORY of a comparison: check everything, choose settings, play every seed, put the table together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pfl_common.errors import RunFailed
from pfl_deploy.comparison.checks import Checked, check, check_folder, check_place
from pfl_deploy.comparison.choosing import Choice, choose
from pfl_deploy.comparison.kept import Kept
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import Comparison
from pfl_deploy.comparison.progress import Progress
from pfl_deploy.comparison.result import Compared, assemble
from pfl_deploy.comparison.trials import Trials


@dataclass(frozen=True)
class Asked:
    """A request for a comparison, and where its results go."""

    plan: Path
    data: Path
    jobs: int = 2
    out: Path | None = None
    keep: Path | None = None
    plots: Path | None = None
    acc_average: str | None = None
    best_mode: str | None = None


def compare(asked: Asked, console: Console) -> Compared:
    """Play a whole comparison; nothing is trained before everything that can be known was checked."""
    plan = Comparison.read(asked.plan).read_as(asked.acc_average, asked.best_mode)
    check_place(asked.out, "--out")
    check_place(asked.keep, "--keep")
    check_folder(asked.plots, "--plots")
    draw = _find_pen() if asked.plots is not None else None
    checked = check(plan, asked.data)
    kept = Kept(asked.keep, checked.circumstances)
    choosing, reported = plan.choosing_trials(), len(plan.contestants) * len(plan.seeds)
    rounds = sum(trial.rounds for trial in choosing) + reported * plan.rounds
    progress = Progress(console, runs=len(choosing) + reported, rounds=rounds, jobs=asked.jobs)
    with progress:
        for words in filter(None, [*kept.tell(), checked.say_held()]):
            progress.say(words)
        runner = Trials(
            plan.common, asked.data, kept=kept, progress=progress, hold_out=checked.circumstances.hold_out
        )
        found = run(plan, checked, runner, jobs=asked.jobs, skip=progress.skip)
    if all(row.failed for row in found.rows):
        raise RunFailed(_all_failed(found))
    if asked.plots is not None and draw is not None:
        draw(found, asked.plots)
        progress.say(f"charts: {asked.plots}")
    return found


def _find_pen() -> Callable[[Compared, Path], list[Path]]:
    """The drawing library; a missing one is reported before anything is trained."""
    from pfl_deploy.comparison import charts

    return charts.draw


def run(
    plan: Comparison,
    checked: Checked,
    runner: Trials,
    *,
    jobs: int,
    skip: Callable[[int, int], None] = lambda trials, rounds: None,
) -> Compared:
    """Choose settings and play every seed."""
    choices = choose(plan, runner, jobs=jobs)
    chosen = {name: choice.settings for name, choice in choices.items() if choice.settings is not None}
    skip((len(choices) - len(chosen)) * len(plan.seeds), plan.rounds)
    outcomes = _play_seeds(plan, choices, runner, jobs=jobs)
    return assemble(plan, checked, choices, outcomes, runner.served)


def _play_seeds(
    plan: Comparison, choices: dict[str, Choice], runner: Trials, *, jobs: int
) -> dict[str, dict[int, Outcome]]:
    chosen = {name: choice.settings for name, choice in choices.items() if choice.settings is not None}
    trials = plan.reported_trials(chosen)
    outcomes: dict[str, dict[int, Outcome]] = {}
    for trial, outcome in zip(trials, runner.run(trials, jobs=jobs), strict=True):
        outcomes.setdefault(trial.contestant.name, {})[trial.seed] = outcome
    return outcomes


def _all_failed(found: Compared) -> str:
    told = "\n".join(f"  {row.contestant.name}: {row.failed}" for row in found.rows)
    return f"no contestant could be trained to the end:\n{told}"
