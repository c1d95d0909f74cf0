"""Chooses settings by mean validation accuracy over sites, in runs of a seed that no reported run uses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pfl_common import methods
from pfl_common.errors import SettingError
from pfl_common.spec.run import Json
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.plan import Comparison, Contestant, Trial, say_value
from pfl_deploy.comparison.trials import Trials


@dataclass(frozen=True)
class Tried:
    """One combination of settings and its results."""

    trial: Trial
    outcome: Outcome


@dataclass(frozen=True)
class Edge:
    """A chosen value at the edge of its grid: a better one may lie beyond."""

    setting: str
    value: Json
    end: str
    """`largest` or `smallest`."""

    def say(self) -> str:
        """The advice that follows."""
        return f"{self.setting} {say_value(self.value)} is the {self.end} tried: widen it"


@dataclass(frozen=True)
class Choice:
    """The settings a contestant is reported with; None if no run of it could be trained."""

    settings: dict[str, Json] | None
    tried: tuple[Tried, ...] = ()
    edges: tuple[Edge, ...] = ()

    @property
    def failed(self) -> tuple[Tried, ...]:
        """Combinations that could not be trained."""
        return tuple(tried for tried in self.tried if tried.outcome.failed)


def choose(plan: Comparison, runner: Trials, *, jobs: int) -> dict[str, Choice]:
    """The best settings of every contestant; of equals those named first."""
    trials = plan.choosing_trials()
    outcomes = runner.run(trials, jobs=jobs)
    tried = [Tried(trial, outcome) for trial, outcome in zip(trials, outcomes, strict=True)]
    return {contestant.name: _choose(plan, contestant, tried) for contestant in plan.contestants}


def _choose(plan: Comparison, contestant: Contestant, tried: Iterable[Tried]) -> Choice:
    if not contestant.chooses:
        return Choice(plan.candidates(contestant)[0])
    own = tuple(one for one in tried if one.trial.contestant is contestant)
    able = [one for one in own if not one.outcome.failed]
    if not able:
        return Choice(None, own)
    how = plan.reading.acc_average
    settings = max(able, key=lambda one: one.outcome.mean("validation", how)).trial.settings
    return Choice(settings, own, tuple(find_edges(contestant, settings)))


def find_edges(contestant: Contestant, settings: dict[str, Json]) -> list[Edge]:
    """Chosen numbers that lie at an end of what was tried; not those beyond which the setting allows no value."""
    found = []
    for name, values in sorted(contestant.try_.items()):
        numbers = _numbers(values)
        value = settings[name]
        if len(numbers) < 2 or not _is_number(value):
            continue
        for end, last, beyond in (("largest", max(numbers), math.inf), ("smallest", min(numbers), -math.inf)):
            if value == last and _allows(contestant, {**settings, name: _next(value, beyond)}):
                found.append(Edge(name, value, end))
    return found


def _numbers(values: Sequence[Json]) -> set[float]:
    return {float(value) for value in values if _is_number(value) and isinstance(value, int | float)}


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _next(value: Json, beyond: float) -> Json:
    """The next value on one side."""
    if isinstance(value, int):
        return value + (1 if beyond > 0 else -1)
    assert isinstance(value, float)
    return math.nextafter(value, beyond)


def _allows(contestant: Contestant, settings: dict[str, Json]) -> bool:
    try:
        methods.load(contestant.method).settle(settings)
    except SettingError:
        return False
    return True
