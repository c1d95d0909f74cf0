"""Comparisons for tests: a plan in a file, sites to compare on, and runs that end by rule instead of by training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from pfl_deploy.comparison import compare
from pfl_deploy.comparison.checks import check
from pfl_deploy.comparison.kept import Kept
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import Comparison, Trial
from pfl_deploy.comparison.progress import Progress
from pfl_deploy.comparison.result import Compared
from pfl_deploy.comparison.trials import Trials
from tests.deploy.support.processes import write_site

PLAN = """
rounds = 2
choosing_rounds = 1
seeds = [0, 1]
[common]
backbone = "mlp"
set = { batch = 8 }
[contestants.alone]
method = "local"
try = { lr = [0.1, 0.3] }
[contestants.together]
method = "fedavg"
try = { lr = [0.1, 0.3] }
"""


def write_plan(folder: Path, text: str = PLAN) -> Path:
    """A comparison's file."""
    file = folder / "plan.toml"
    file.write_text(text)
    return file


def write_data(folder: Path, *, validation: bool = True) -> Path:
    """Two sites with test and, if wanted, validation samples."""
    for seed, name in enumerate(("a", "b")):
        site = write_site(folder / name, samples=16, size=8, classes=("x", "y"), seed=seed)
        if validation:
            (site / "validation.npz").write_bytes((site / "test.npz").read_bytes())
    return folder


Rule = Callable[[Mapping[str, Any]], Outcome]


def by_rule(server: Mapping[str, Any]) -> Outcome:
    """A larger step is better on validation data and worse on test data; a later seed is better by 0.2 at site a."""
    lr = float(server["set"].get("lr", 0.0))
    ahead = 0.1 if server["method"] == "fedavg" else 0.0
    test = {"a": 0.5 - lr + ahead + 0.2 * server["seed"], "b": 0.9}
    return Outcome({"validation": {"a": lr, "b": lr}, "test": test}, {1: 0.25, 2: 0.5})


class Played:
    """A comparison played by a rule; remembers what was asked and said."""

    def __init__(self, plan: Path, data: Path, rule: Rule = by_rule, *, keep: Path | None = None) -> None:
        self.asked: list[tuple[str, int, int, Any]] = []
        self._text = StringIO()
        self.plan = Comparison.read(plan)
        checked = check(self.plan, data)
        self.kept = Kept(keep, checked.circumstances)
        console = Console(file=self._text, width=200)

        def play(request: Mapping[str, Any], name: str) -> Outcome:
            server = request["server"]
            self.asked.append((name, server["seed"], server["rounds"], server["set"].get("lr")))
            return rule(server)

        progress = Progress(console, runs=8, rounds=12, jobs=1)
        self.runner = Trials(self.plan.common, data, kept=self.kept, progress=progress, play=play)
        self.found: Compared = compare.run(self.plan, checked, self.runner, jobs=1, skip=progress.skip)

    @property
    def said(self) -> str:
        """What was said on the way."""
        return self._text.getvalue()

    def row(self, name: str) -> dict[str, Any]:
        """A contestant as JSON."""
        return self.found.to_json()["contestants"][name]


def find_trial(plan: Comparison, name: str) -> Trial:
    """A reported run of a contestant with its first settings."""
    contestant = next(one for one in plan.contestants if one.name == name)
    return Trial(contestant, plan.candidates(contestant)[0], plan.seeds[0], plan.rounds)
