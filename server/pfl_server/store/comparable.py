"""Decides whether two runs can be compared, and describes their differences.

One number is called above another only where nothing differs but the methods and their own settings. Every field of a
specification is compared unless it is named here as an exception, so a new one is compared from its first day. What
differs is named with both values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pfl_common.learning.method import Settings
from pfl_common.spec.participation import Participation
from pfl_common.spec.run import ClientId, Json, Model, RunSpec, Weights

NOT_COMPARED = {
    "id": "a name",
    "method": "what a comparison is about",
    "manifests": "what travels is the method's own",
    "chosen": "words for people; what was chosen is a part of the model",
    "repeatable": "follows from the number of threads and the precision",
    "keep": "which models sites keep changes no training",
    "downlink": "which downloads can cross as changes is the method's own; the encoding is compared",
    "memory_format": "the same numbers in another place round otherwise, as on another machine",
    "digests": "by which hash files are known changes none of their bytes",
    "patience": "what counts is how many rounds were trained, which is compared",
    "versions": "another release or machine rounds otherwise; a baseline from before an upgrade stays one",
}
"""Fields of a specification in which two runs may differ, and why."""
COMPARED_BY_PARTS = frozenset({"settings", "model", "roster", "data"})
"""Fields of which each part is compared and named: see `differ_in_settings`, `differ_in_data` and the network below."""
_NOT_OF_TRAINING = frozenset({"bn_policy", "aggregation", "eval_point", "diagnose"})
"""What every method has and is still the method's own: how sites' work is put together, measured and told."""
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
    """By fingerprint; where neither run has one of a site, by its number of samples."""
    sites, others = sorted(one.spec.roster), sorted(other.spec.roster)
    if sites != others:
        return [_pair("sites", sites, others)]
    # A run of an older release noted none at all, which says nothing against its data.
    noted = bool(one.spec.data) and bool(other.spec.data)
    prints = {site: (one.spec.data.get(site), other.spec.data.get(site)) for site in sites if noted}
    changed = [site for site, (ours, theirs) in prints.items() if ours != theirs]
    counts = {
        site: (one.samples.get(site), other.samples.get(site))
        for site in sites
        if prints.get(site, (None, None)) == (None, None)
    }
    return [f"data of {_name(changed)}"] * bool(changed) + [
        _pair(f"samples of {site}", ours, theirs) for site, (ours, theirs) in counts.items() if ours != theirs
    ]


def _conditions(one: Subject, other: Subject) -> list[str]:
    """The differences in the network and in every other field that is compared as a whole."""
    ours, theirs = _list_conditions(one), _list_conditions(other)
    return [_pair(name, ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]]


def _list_conditions(of: Subject) -> dict[str, object]:
    model = {_MODEL_WORDS.get(name, name): value for name, value in _list_fields(of.spec.model).items()}
    apart = NOT_COMPARED.keys() | COMPARED_BY_PARTS
    whole = {name: value for name, value in _list_fields(of.spec).items() if name not in apart}
    return {**model, **whole, "rounds": of.rounds}


def _list_fields(of: RunSpec | Model) -> dict[str, object]:
    return {field.name: getattr(of, field.name) for field in dataclasses.fields(of)}


_MODEL_WORDS = {"shape": "size", "deviation": "standardisation"}


def _pair(name: str, mine: object, theirs: object) -> str:
    words = say_value(mine), say_value(theirs)
    if words[0] == words[1]:
        words = _say_apart(mine, theirs)
    return f"{name} {words[0]}, there {words[1]}"


def _say_apart(mine: object, theirs: object) -> tuple[str, str]:
    """Two values that read alike when they are shortened: of lists the places that differ, of numbers all digits."""
    if isinstance(mine, list | tuple) and isinstance(theirs, list | tuple) and len(mine) == len(theirs):
        places = [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]][:MOST_NAMED]
        return ", ".join(repr(ours) for ours, _ in places), ", ".join(repr(other) for _, other in places)
    return repr(mine), repr(theirs)


def say_value(value: object) -> str:
    """A value as it is typed; what is not there is none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Participation):
        return f"{value.text} with drop-outs {value.drop:g}" if value.drop else value.text
    if isinstance(value, Weights):
        return f"{value.source} ({value.sha256[:12]})"
    if isinstance(value, list | tuple):
        return _name([say_value(part) for part in value]) if value else "none"
    return str(value) or "none"


def _name(words: list[str]) -> str:
    """A few, and how many more there are."""
    shown = ", ".join(words[:MOST_NAMED])
    return shown if len(words) <= MOST_NAMED else f"{shown} and {len(words) - MOST_NAMED} more"
