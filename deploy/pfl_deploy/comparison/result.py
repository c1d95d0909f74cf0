"""A comparison's findings as plain values: per contestant its settings, accuracies over seeds, and differences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any  # plain values on their way to JSON

from pfl_common.spec.run import Json, RunSpec
from pfl_deploy.comparison.checks import Checked
from pfl_deploy.comparison.choosing import Choice, Tried
from pfl_deploy.comparison.course import SHARE, Courses, follow, gather
from pfl_deploy.comparison.outcome import Outcome
from pfl_deploy.comparison.paired import Paired, pair
from pfl_deploy.comparison.plan import Comparison, Contestant, say
from pfl_deploy.report.averages import Average, Reading
from pfl_server.store.comparable import Differences, differ_in_settings, say_value

REPORTED = {"test": "test data", "shifted": "shifted test data"}
"""The parts that are reported, in plain words."""


@dataclass(frozen=True)
class Spread:
    """Mean and deviation over seeds."""

    mean: float
    std: float


@dataclass(frozen=True)
class Row:
    """The findings for one contestant."""

    contestant: Contestant
    choice: Choice
    outcomes: Mapping[int, Outcome]
    """By seed."""
    differences: Differences
    """Between it and the reference."""
    against: Mapping[str, Paired]
    """By part: how far it lies above the reference."""
    reading: Reading = field(default_factory=Reading)
    courses: Courses | None = None
    """How it came there, over its seeds; None where it failed."""

    @property
    def failed(self) -> str:
        """Why it has no result; empty if it has one."""
        if self.choice.settings is None:
            return f"no setting could be trained: {_list_failed(self.choice.failed)}"
        failed = {seed: outcome for seed, outcome in self.outcomes.items() if outcome.failed}
        if not failed:
            return ""
        first = next(iter(failed.values()))
        share = "" if len(failed) == len(self.outcomes) else f", {len(failed)} of {len(self.outcomes)} seeds"
        return f"{first.reason} ({_say_first(self.choice.settings)}{share})"

    def means(self, part: str) -> dict[int, float]:
        """The average over sites by seed."""
        how = self.reading.acc_average
        return {
            seed: found.mean(part, how) for seed, found in self.outcomes.items() if part in found.accuracy
        }

    def spread(self, part: str) -> dict[str, Spread]:
        """Per site and over all sites; nothing where a seed is missing."""
        if self.failed:
            return {}
        runs = [found.accuracy[part] for found in self.outcomes.values() if part in found.accuracy]
        if not runs:
            return {}
        columns = {site: [run[site] for run in runs] for site in sorted(runs[0])}
        columns["mean"] = list(self.means(part).values())
        return {name: _spread(values) for name, values in columns.items()}


@dataclass(frozen=True)
class Compared:
    """All findings of a comparison."""

    plan: Comparison
    checked: Checked
    rows: tuple[Row, ...]
    served: int
    """Results that were taken from the file."""
    target: float = 0.0
    """The accuracy that rounds and bytes are counted to."""

    @property
    def parts(self) -> list[str]:
        """The reported parts that there are."""
        return [part for part in REPORTED if any(row.spread(part) for row in self.rows)]

    @property
    def runs(self) -> int:
        """The number of runs behind the table."""
        return sum(len(row.outcomes) + len(row.choice.tried) for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """For other programs."""
        plan, checked = self.plan, self.checked
        return {
            "rounds": plan.rounds,
            "choosing_rounds": plan.choosing_rounds,
            "seeds": list(plan.seeds),
            "reference": plan.reference,
            "reading": asdict(plan.reading),
            "target": self.target,
            "common": {**plan.common, "set": plan.shared},
            "data": dict(checked.circumstances.data),
            "versions": dict(checked.circumstances.versions),
            "held_back": {
                "share": checked.circumstances.hold_out,
                "sites": {site: asdict(held) for site, held in checked.held.items()},
            },
            "runs": {"all": self.runs, "from_file": self.served},
            "contestants": {row.contestant.name: _row_json(row, self.parts) for row in self.rows},
        }


def assemble(
    plan: Comparison,
    checked: Checked,
    choices: Mapping[str, Choice],
    outcomes: Mapping[str, Mapping[int, Outcome]],
    served: int,
) -> Compared:
    """Put everything together, each contestant beside the reference."""
    reference = next(one for one in plan.contestants if one.name == plan.reference)
    reading = plan.reading
    rows = [
        Row(one, choices[one.name], outcomes.get(one.name, {}), Differences(), {}, reading)
        for one in plan.contestants
    ]
    base = rows[plan.contestants.index(reference)]
    target = plan.target or _share_of_best(base)
    compared = (replace(_compare(row, base, checked), courses=_follow(row, target)) for row in rows)
    return Compared(plan, checked, tuple(compared), served, target)


def _share_of_best(base: Row) -> float:
    """A target that most contestants come near to."""
    found = _follow(base, 0.0)
    return SHARE * found.best if found else 0.0


def _follow(row: Row, target: float) -> Courses | None:
    if row.failed:
        return None
    found = [follow(outcome, row.reading, target) for outcome in row.outcomes.values()]
    return gather([one for one in found if one is not None])


def _compare(row: Row, base: Row, checked: Checked) -> Row:
    if row is base or row.choice.settings is None or base.choice.settings is None:
        return row
    differences = _differ(row, base, checked)
    against = {}
    for part in REPORTED:
        ours, theirs = row.means(part), base.means(part)
        # Over fewer seeds than were asked for, a difference would favour a method that fails where it is hard.
        if not (row.failed or base.failed) and ours.keys() == theirs.keys() and ours:
            against[part] = pair(ours, theirs)
    return replace(row, differences=differences, against=against)


def _differ(row: Row, base: Row, checked: Checked) -> Differences:
    """Settings with defaults filled in; what both chose from the same values was chosen alike."""
    ours, theirs = row.contestant, base.contestant
    alike = [
        name
        for name in ours.try_.keys() & theirs.try_.keys()
        if _as_set(ours.try_[name]) == _as_set(theirs.try_[name])
    ]
    mine, other = (_settled(one, checked) for one in (row, base))
    found = differ_in_settings(mine, other, chosen=alike)
    found = replace(found, hindering=tuple(_say_grids(words, ours, theirs) for words in found.hindering))
    conditions = [_read_conditions(checked.specs[one.name]) for one in (ours, theirs)]
    own = [f"{name} {ours}, there {there}" for name, ours, there in _list_differing(*conditions)]
    # A plan says so on purpose, to see what a projector or an encoding brings: it is named and hinders nothing.
    return Differences(found.hindering, (*found.own, *own))


def _read_conditions(spec: RunSpec) -> dict[str, str]:
    """What a contestant may have of its own beside its method, as it is told."""
    encoding = spec.encoding + " with changes down" * (spec.downlink == "delta")
    return {"encoder_projector": say_value(spec.model.encoder_projector), "encoding": encoding}


def _list_differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [(name, ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]]


def _say_grids(words: str, ours: Contestant, theirs: Contestant) -> str:
    """Where one was chosen from fewer values than the other, those are what differs."""
    name = words.partition(" ")[0]
    tried = [", ".join(map(say_value, one.try_[name])) for one in (ours, theirs) if name in one.try_]
    return words if len(tried) < 2 else f"{name} chosen from {tried[0]}, there from {tried[1]}"


def _settled(row: Row, checked: Checked) -> dict[str, Json]:
    """Its settings with its defaults."""
    return {**checked.specs[row.contestant.name].settings, **(row.choice.settings or {})}


def _as_set(values: Sequence[Json]) -> set[str]:
    return {say_value(value) for value in values}


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)


def _list_failed(failed: Sequence[Tried]) -> str:
    told = [f"{tried.outcome.reason} ({_say_first(tried.trial.varied)})" for tried in failed]
    return "; ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")


def _say_first(settings: Mapping[str, Json]) -> str:
    """The step size is what most often makes training diverge."""
    return say({"lr": settings["lr"]}) if "lr" in settings else say(settings) or "default settings"


def _row_json(row: Row, parts: Sequence[str]) -> dict[str, Any]:
    return {
        "method": row.contestant.method,
        "settings": row.choice.settings,
        "failed": f"failed: {row.failed}" if row.failed else None,
        "tried": [_tried_json(tried, row.reading.acc_average) for tried in row.choice.tried],
        "edges": [asdict(edge) for edge in row.choice.edges],
        **{part: {name: asdict(one) for name, one in row.spread(part).items()} for part in parts},
        "course": asdict(row.courses) if row.courses else None,
        "seeds": {str(seed): _outcome_json(outcome) for seed, outcome in row.outcomes.items()},
        "against": {
            "not_comparable": list(row.differences.hindering),
            "differs": list(row.differences.own),
            **{part: {**asdict(paired), "n": paired.n} for part, paired in row.against.items()},
        },
    }


def _tried_json(tried: Tried, how: Average) -> dict[str, Any]:
    failed = tried.outcome.failed
    return {
        "settings": tried.trial.varied,
        "validation": None if failed else tried.outcome.mean("validation", how),
        "failed": f"failed: {tried.outcome.reason} ({_say_first(tried.trial.varied)})" if failed else None,
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    if outcome.failed:
        return {"failed": outcome.failed}
    return {"accuracy": {part: outcome.accuracy[part] for part in REPORTED if part in outcome.accuracy}}
