"""What hostile updates do to a federation, and what each robust rule keeps of it.

    python -m tests.hostile.updates [--sites 10] [--hostile 3] [--rounds 12]

Prints the accuracy on clean samples after a run of FedAvg, for each attack (rows) under each rule (columns); for the
backdoor also the share of stamped samples that the model puts into the attacker's class. Everything but the network
is real: training, parcels, the checks of an update, the spool, the coordinator's training.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
import torch

from pfl_common.learning.method import Samples
from pfl_common.models import catalogue
from pfl_common.spec.rules import Robust
from pfl_common.tensors.state import State
from tests.server.support.learners import (
    CLASSES,
    TARGET,
    Attack,
    Poison,
    build_small,
    draw_samples,
    make_spec,
    play,
    score,
    stamp,
)

RULES: tuple[Robust, ...] = ("none", "median", "trimmed", "krum", "multi-krum", "norm-clip")


@dataclass(frozen=True)
class Hostility:
    """What hostile sites do."""

    attack: Attack | None = None
    poison: Poison | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def multiply(factor: float) -> Attack:
    """The change, so many times; with a negative factor in the other direction. Statistics stay what they are."""

    def change(up: State, sent: State) -> State:
        far = {
            name: sent[name] + factor * (value - sent[name])
            for name, value in up.items()
            if name in sent and not name.endswith("running_var")
        }
        return up | far

    return change


def weigh(weight: int) -> Attack:
    """The same numbers with another weight."""
    return lambda up, sent: up | {name: torch.tensor(weight) for name in up if name.startswith("weight.")}


def overwrite(value: float, end: str) -> Attack:
    """One value in all tensors whose names end so."""
    return lambda up, sent: (
        up
        | {
            name: torch.full_like(number, value)
            for name, number in up.items()
            if name.startswith("sum.") and name.endswith(end)
        }
    )


def flip_labels(samples: Samples) -> Samples:
    """Each class under the next one's name."""
    return replace(samples, y=(samples.y + 1) % CLASSES)


def plant_backdoor(samples: Samples) -> Samples:
    """Every second sample once more, stamped and under the attacker's class."""
    half = torch.arange(0, len(samples), 2)
    x = torch.cat([samples.x[1::2], stamp(samples.x[half])])
    return replace(samples, x=x, y=torch.cat([samples.y[1::2], torch.full((len(half),), TARGET)]))


ATTACKS: dict[str, Hostility] = {
    "none": Hostility(),
    "label flip": Hostility(poison=flip_labels),
    "sign flip": Hostility(attack=multiply(-4.0)),
    "scaled 50 times": Hostility(attack=multiply(50.0), poison=flip_labels),
    "backdoor": Hostility(attack=multiply(5.0), poison=plant_backdoor),
}


@dataclass(frozen=True)
class Kept:
    """What is left of a model."""

    accuracy: float
    backdoor: float
    """Share of stamped samples of other classes that are taken for the attacker's."""


def measure(folder: Path, how: Hostility, rule: Robust, *, sites: int, hostile: int, rounds: int) -> Kept:
    """A whole run under an attack."""
    share = {"hostile_share": hostile / sites} if rule in ("trimmed", "krum", "multi-krum") else {}
    spec = make_spec(sites=sites, rounds=rounds, robust=rule, **share)
    liars = spec.roster[::2][:hostile]
    attacks = {site: how.attack for site in liars if how.attack}
    poisons = {site: how.poison for site in liars if how.poison}
    state, _, _ = play(folder, spec, attacks, poisons)
    test = draw_samples("test", 400)
    others = test.y != TARGET
    marked = score(spec, state, stamp(test.x[others]), torch.full((int(others.sum()),), TARGET))
    return Kept(score(spec, state, test.x, test.y), marked)


def main() -> None:
    """Print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("--sites", 10), ("--hostile", 3), ("--rounds", 12)):
        words.add_argument(name, type=int, default=usual)
    given = words.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    torch.set_num_threads(1)
    catalogue._BACKBONES["small"] = build_small
    show(lambda how, rule: _fresh(how, rule, given))


def _fresh(how: Hostility, rule: Robust, given: argparse.Namespace) -> Kept:
    with tempfile.TemporaryDirectory() as folder:
        return measure(Path(folder), how, rule, sites=given.sites, hostile=given.hostile, rounds=given.rounds)


def show(find: Callable[[Hostility, Robust], Kept]) -> None:
    """One line an attack, one column a rule."""
    lines = ["attack".ljust(24) + "".join(rule.rjust(12) for rule in RULES)]
    for name, how in ATTACKS.items():
        found = [find(how, rule) for rule in RULES]
        lines.append(name.ljust(24) + "".join(f"{kept.accuracy:.3f}".rjust(12) for kept in found))
        if name in ("none", "backdoor"):
            row = "".join(f"{kept.backdoor:.3f}".rjust(12) for kept in found)
            lines.append("  stamped as class 0".ljust(24) + row)
    print("\n".join(lines))  # the table is what the command is for


if __name__ == "__main__":
    main()
