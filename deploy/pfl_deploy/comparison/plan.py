"""A comparison's file: the settings of all runs, then one table per contestant with fixed settings and values to try.

Every word of the file is checked when it is read: a wrong one is an error that names the nearest right one.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any  # a TOML file's values are of any type until they are settled

from pydantic import Field
from pydantic import JsonValue as Json
from pydantic.dataclasses import dataclass as checked

from pfl_common import methods
from pfl_common.app.config import settle
from pfl_common.errors import SettingError, nearest
from pfl_common.learning.method import STRICT
from pfl_common.spec.rules import Downlink
from pfl_deploy.report.averages import Average, BestMode, Reading
from pfl_server.settings import HERE_ONLY, ServerSettings

CHOOSING_SEED = 1000
"""Settings are chosen with a seed that no reported run uses."""
_OF_EACH_RUN = frozenset({"method", "rounds", "seed", "sites"})
"""Settings of a run that the comparison itself fills in."""


@checked(frozen=True, config=STRICT)
class Contestant:
    """A method, its fixed settings, and the settings to be chosen."""

    name: str
    method: str
    preset: str = ""
    encoder_projector: bool | None = None
    encoding: str | None = None
    """How its numbers cross; None: as in all runs."""
    downlink: Downlink | None = None
    """How its downloads cross under that encoding; None: as in all runs."""
    set: dict[str, Json] = field(default_factory=dict)
    try_: dict[str, Annotated[list[Json], Field(min_length=1)]] = field(default_factory=dict)

    def candidates(self, shared: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Every combination of the values to choose from, on top of the preset, what all share, and what is fixed."""
        preset = methods.load(self.method).presets.get(self.preset, {})
        names = sorted(self.try_)
        for values in itertools.product(*(self.try_[name] for name in names)):
            yield {**preset, **shared, **self.set, **dict(zip(names, values, strict=True))}

    @property
    def chooses(self) -> bool:
        """Whether there is more than one combination."""
        return any(len(values) > 1 for values in self.try_.values())


@checked(frozen=True, config=STRICT)
class _Words:
    """The top of the file, as written."""

    rounds: Annotated[int, Field(ge=1)]
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    contestants: Annotated[dict[str, dict[str, Json]], Field(min_length=1)]
    choosing_rounds: Annotated[int, Field(ge=0)] = 0
    reference: str = ""
    hold_out: Annotated[float, Field(gt=0, le=0.5)] = 0.2
    acc_average: Average = "macro"
    best_mode: BestMode = "common_round"
    target: Annotated[float, Field(ge=0, le=1)] = 0.0
    common: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The contestants and their common conditions."""

    rounds: int
    choosing_rounds: int
    seeds: tuple[int, ...]
    common: dict[str, Json]
    """Settings of the run that all contestants share."""
    shared: dict[str, Json]
    """Settings of the methods that all contestants share, unless they say otherwise."""
    contestants: tuple[Contestant, ...]
    reference: str
    """The contestant that differences are told against."""
    hold_out: float
    """Share of each class of the training part that is kept for choosing, where a site has no validation part."""
    reading: Reading = field(default_factory=Reading)
    """How accuracies become one number; nothing of it is trained."""
    target: float = 0.0
    """The accuracy that rounds and bytes are counted to; 0 takes a share of the reference's best."""

    @classmethod
    def read(cls, file: Path) -> Comparison:
        """Read and check a comparison's file."""
        words = settle(_Words, _with_needed(_read_toml(file), file), what=str(file))
        common = dict(words.common)
        shared = common.pop("set", {})
        if not isinstance(shared, dict):
            raise SettingError(
                f"{file}: [common] set is {shared!r}", expected="a table, as set = { lr = 0.1 }"
            )
        contestants = tuple(_contestant(name, table) for name, table in words.contestants.items())
        made = cls(
            rounds=words.rounds,
            choosing_rounds=words.choosing_rounds or words.rounds,
            seeds=words.seeds,
            common=common,
            shared=shared,
            contestants=contestants,
            reference=words.reference or contestants[0].name,
            hold_out=words.hold_out,
            reading=Reading(words.acc_average, words.best_mode),
            target=words.target,
        )
        _check_common(common)
        _check_seeds(words.seeds)
        _check_reference(made)
        return made

    def read_as(self, acc_average: str | None, best_mode: str | None) -> Comparison:
        """The same with another way to read accuracies, where a command names one."""
        own = self.reading
        return replace(self, reading=Reading.of(acc_average or own.acc_average, best_mode or own.best_mode))

    @property
    def chooses(self) -> bool:
        """Whether any setting of any contestant is to be chosen."""
        return any(contestant.chooses for contestant in self.contestants)

    def candidates(self, contestant: Contestant) -> list[dict[str, Json]]:
        """All settings a contestant may play with."""
        return list(contestant.candidates(self.shared))

    def choosing_trials(self) -> list[Trial]:
        """One run for each combination of each contestant that has something to choose."""
        return [
            Trial(contestant, settings, CHOOSING_SEED, self.choosing_rounds)
            for contestant in self.contestants
            if contestant.chooses
            for settings in self.candidates(contestant)
        ]

    def reported_trials(self, chosen: Mapping[str, dict[str, Json]]) -> list[Trial]:
        """One run for each seed of each contestant that has settings."""
        return [
            Trial(contestant, chosen[contestant.name], seed, self.rounds)
            for contestant in self.contestants
            if contestant.name in chosen
            for seed in self.seeds
        ]

    def to_json(self) -> dict[str, Json]:
        """As plain values, contestants under their names."""
        plain: dict[str, Json] = json.loads(json.dumps(asdict(self)))
        return plain


@dataclass(frozen=True)
class Trial:
    """One simulated run."""

    contestant: Contestant
    settings: dict[str, Json]
    seed: int
    rounds: int

    @property
    def is_choosing(self) -> bool:
        """Whether it only serves to choose settings."""
        return self.seed == CHOOSING_SEED

    @property
    def varied(self) -> dict[str, Json]:
        """Those of its settings that the contestant chooses among."""
        return {name: self.settings[name] for name in sorted(self.contestant.try_)}

    def server(self, common: Mapping[str, Json]) -> dict[str, Any]:
        """The settings of its run."""
        own = {name: getattr(self.contestant, name) for name in OWN_CONDITIONS}
        return {
            **common,
            **{name: value for name, value in own.items() if value is not None},
            "method": self.contestant.method,
            "rounds": self.rounds,
            "seed": self.seed,
            "set": self.settings,
        }


def say(settings: Mapping[str, Json]) -> str:
    """Settings as a person reads them: lr 0.1, lambda 3."""
    return ", ".join(f"{name} {say_value(value)}" for name, value in settings.items())


def say_value(value: Json) -> str:
    """A setting's value as it is typed."""
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise SettingError(
            f"the comparison {file} cannot be read: {error.strerror}", expected="a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(
            f"{file} is no comparison: {error}", expected="rounds, seeds, [contestants.NAME] in TOML"
        ) from None


def _with_needed(plan: dict[str, Any], file: Path) -> dict[str, Any]:
    missing = [name for name in ("rounds", "seeds", "contestants") if name not in plan]
    # A word written wrong is told as such, and not as the right one missing.
    if missing and plan.keys() <= set(_Words.__dataclass_fields__):
        raise SettingError(
            f"{file} is no comparison: it has no {' and no '.join(missing)}",
            expected="rounds, seeds, [contestants.NAME]",
            advice="see deploy/comparisons for one that is whole",
        )
    return plan


def _contestant(name: str, table: Mapping[str, Json]) -> Contestant:
    where = f"[contestants.{name}]"
    if "name" in table:
        raise SettingError(f"{where} has a name of its own", expected="the name in the brackets alone")
    if not isinstance(table.get("method"), str) and table.keys() <= set(_OPTIONAL):
        raise SettingError(f"{where} names no method", expected=nearest(name, methods.names()))
    made = settle(Contestant, {**table, "name": name}, what=where)
    method = methods.load(made.method)
    if made.preset and made.preset not in method.presets:
        raise SettingError(
            f"{where}: {method.name} has no preset {made.preset!r}",
            expected=nearest(made.preset, method.presets),
        )
    for setting in sorted(made.set.keys() & made.try_.keys()):
        raise SettingError(f"{where}: {setting} stands under set and under try", expected="one of the two")
    return made


OWN_CONDITIONS = ("encoder_projector", "encoding", "downlink")
"""Conditions of a run in which a contestant may differ on purpose, to see what they bring."""
_OPTIONAL = ("method", "preset", *OWN_CONDITIONS, "set", "try")


def _check_common(common: Mapping[str, Json]) -> None:
    known = sorted(ServerSettings.__dataclass_fields__.keys() - HERE_ONLY - _OF_EACH_RUN)
    for name in common:
        if name not in known:
            raise SettingError(f"[common] has no setting {name!r}", expected=nearest(name, known))


def _check_seeds(seeds: Sequence[int]) -> None:
    if len(set(seeds)) < len(seeds):
        raise SettingError(f"seeds are {list(seeds)}", expected="each seed once")
    if CHOOSING_SEED in seeds:
        raise SettingError(
            f"{CHOOSING_SEED} is among the seeds",
            expected="any others: with this one settings are chosen, so its runs would not be new ones",
        )


def _check_reference(plan: Comparison) -> None:
    names = [contestant.name for contestant in plan.contestants]
    if plan.reference not in names:
        raise SettingError(f"reference is {plan.reference!r}", expected=nearest(plan.reference, names))
