"""Decides whether two runs can be compared, and describes their differences.

One number is called above another only where nothing differs but the methods and their own settings: equal data,
rounds, network, participation, seed and optimiser. Everything else is named, with both values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pfl_common.learning.method import Settings
from pfl_common.spec.run import ClientId, Json, RunSpec

_NOT_OF_TRAINING = frozenset({"bn_policy", "aggregation", "eval_point"})
"""What every method has and is still the method's own: how sites' work is put together and measured."""
OPTIMISER = tuple(field.name for field in dataclasses.fields(Settings) if field.name not in _NOT_OF_TRAINING)
"""Settings of the training itself: with another value every method is another."""
MOST_NAMED = 5


@dataclass(frozen=True)
class Subject:
    """A run, as far as a comparison needs it."""

    spec: RunSpec
    samples: Mapping[ClientId, int | None]
    """Training samples of each site; None where its policy keeps that to itself."""
    rounds: int
    """How many are trained: a run under way has fewer than it wants."""


@dataclass(frozen=True)
class Differences:
    """The differences between two runs, each with both values."""

    hindering: tuple[str, ...] = ()
    """Why one number says nothing about the other."""
    own: tuple[str, ...] = ()
    """Settings of the methods themselves, and those that were chosen for each alike."""

    @property
    def comparable(self) -> bool:
        """Whether above and below may be said."""
        return not self.hindering


def find_differences(one: Subject, other: Subject, *, chosen: Collection[str] = ()) -> Differences:
    """The differences; settings that were `chosen` for both from the same values do not prevent a comparison."""
    hindering = [*differ_in_data(one, other), *_conditions(one, other)]
    settings = differ_in_settings(one.spec.settings, other.spec.settings, chosen=chosen)
    return Differences((*hindering, *settings.hindering), settings.own)


def differ_in_settings(
    one: Mapping[str, Json], other: Mapping[str, Json], *, chosen: Collection[str] = ()
) -> Differences:
    """The settings of two methods: those of the optimiser hinder, the methods' own are named."""
    hindering: list[str] = []
    own: list[str] = []
    for name in sorted(one.keys() | other.keys()):
        if (name in one) == (name in other) and one.get(name) == other.get(name):
            continue
        words = _pair(
            name, *(("null" if name in of and of[name] is None else of.get(name)) for of in (one, other))
        )
        (hindering if name in OPTIMISER and name not in chosen else own).append(words)
    return Differences(tuple(hindering), tuple(own))


def differ_in_data(one: Subject, other: Subject) -> list[str]:
    """By fingerprint; of runs of older releases, which noted none, by sites and how many samples they have."""
    sites, others = set(one.spec.roster), set(other.spec.roster)
    if sites != others:
        return [_pair("sites", _name(sorted(sites)), _name(sorted(others)))]
    if one.spec.data and other.spec.data:
        changed = [site for site in sorted(sites) if one.spec.data.get(site) != other.spec.data.get(site)]
        return [f"data of {_name(changed)}"] if changed else []
    counts = {site: (one.samples.get(site), other.samples.get(site)) for site in sorted(sites)}
    return [
        _pair(f"samples of {site}", ours, theirs) for site, (ours, theirs) in counts.items() if ours != theirs
    ]


def _conditions(one: Subject, other: Subject) -> list[str]:
    """The data a run is trained on, and its other conditions."""
    found = [
        _pair(_MODEL_WORDS.get(field.name, field.name), mine, theirs)
        for field in dataclasses.fields(one.spec.model)
        if (mine := getattr(one.spec.model, field.name)) != (theirs := getattr(other.spec.model, field.name))
    ]
    if one.rounds != other.rounds:
        found.append(_pair("rounds", one.rounds, other.rounds))
    if one.spec.seed != other.spec.seed:
        found.append(_pair("seed", one.spec.seed, other.spec.seed))
    if one.spec.participation != other.spec.participation:
        found.append(_pair("participation", _share(one.spec), _share(other.spec)))
    return found


_MODEL_WORDS = {"shape": "size", "deviation": "standardisation"}


def _share(spec: RunSpec) -> str:
    rule = spec.participation
    return f"{rule.text} with drop-outs {rule.drop:g}" if rule.drop else rule.text


def _pair(name: str, mine: object, theirs: object) -> str:
    return f"{name} {say_value(mine)}, there {say_value(theirs)}"


def say_value(value: object) -> str:
    """A value as it is typed; what is not there is none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return _name([say_value(part) for part in value]) if value else "none"
    return str(value) or "none"


def _name(words: list[str]) -> str:
    """A few, and how many more there are."""
    shown = ", ".join(words[:MOST_NAMED])
    return shown if len(words) <= MOST_NAMED else f"{shown} and {len(words) - MOST_NAMED} more"
