"""Attacks by one upload, or by a few sites' uploads, against sites that really learn: what each comes to.

The long form, with more sites and each rule against each attack: `python -m tests.hostile.updates`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pfl_common.errors import Refused
from pfl_common.models import catalogue
from pfl_common.tensors.state import State, flat
from tests.hostile.updates import ATTACKS, measure, multiply, overwrite, weigh
from tests.server.support.learners import Attack, Learners, build_small, make_spec, play


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learners' network."""
    monkeypatch.setitem(catalogue._BACKBONES, "small", build_small)


LIAR = "site_02"


def show_lie(name: str, value: float) -> Attack:
    """One shown tensor, or all of a model that is shown."""
    return lambda up, sent: (
        up
        | {
            one: torch.full_like(number, value)
            for one, number in up.items()
            if one.startswith(f"show.{name}")
        }
    )


SHARED = {"lr": 0.1, "bn_policy": "share_all"}
UPLOADS: dict[str, tuple[str, Attack, str, dict[str, object]]] = {
    "a thousand times the change": ("fedavg", multiply(1000.0), "change", {}),
    "the largest weight there is": ("fedavg", weigh(2**63 - 1), "weight", {}),
    "one sample more than declared": ("fedavg", weigh(49), "weight", {}),
    "a weight of 1000 under uniform": (
        "fedavg",
        weigh(1000),
        "weight",
        {"lr": 0.1, "aggregation": "uniform"},
    ),
    "a norm of 9e8": ("fedavg", overwrite(9e8 / 16, "encoder.1.weight"), "change", {}),
    "a negative variance": ("fedavg", overwrite(-1.0, "running_var"), "value", SHARED),
    "a model of 3e38, shown": ("fedcac", show_lie("w.", 3e38), "norm", {}),
    "fewer than no samples, shown": (
        "fedcac",
        show_lie("samples", -359),
        "value",
        {"aggregation": "samples"},
    ),
    "more samples than declared, shown": (
        "fedcac",
        show_lie("samples", 49),
        "value",
        {"aggregation": "samples"},
    ),
    "a model of 3e38, to be mixed": ("fedamp", show_lie("model.", 3e38), "norm", {}),
    "a model of 9e8, to be sent to others": ("fedfomo", show_lie("model.head", 9e8 / 16), "change", {}),
}


@pytest.mark.parametrize(("method", "attack", "code", "settings"), UPLOADS.values(), ids=UPLOADS.keys())
def test_one_upload_is_lost_and_nothing_else(
    tmp_path: Path, method: str, attack: Attack, code: str, settings: dict[str, object]
) -> None:
    """The run ends in the bits of one in which that site trains and its updates never come."""
    spec = make_spec(method, sites=4, rounds=2, settings=settings or {"lr": 0.1})
    state, fleet, training = play(tmp_path / "attacked", spec, {LIAR: attack})
    assert {f"refused:{code}"} == lost(fleet)
    assert "finished" == training.status().status
    alone, _, _ = play(tmp_path / "without", spec, {LIAR: never})
    assert torch.equal(flat(numbers(alone)), flat(numbers(state)))


def test_two_sites_and_a_norm_of_9e8(tmp_path: Path) -> None:
    """Nobody can tell the odd one of two: the bound that needs no others holds, and the honest one is never refused."""
    spec = make_spec(sites=2, rounds=3, settings={"lr": 0.1})
    liar, honest = spec.roster
    _, fleet, training = play(tmp_path, spec, {liar: overwrite(9e8 / 16, "encoder.1.weight")})
    assert {(liar, "change")} == {(site, code) for site, _, code in fleet.refused}
    assert "finished" == training.status().status
    assert [[honest]] * 3 == [row["counted"] for row in fleet.rows]


def never(up: State, sent: State) -> State:
    raise Refused("late", "it never comes")


def numbers(state: State) -> State:
    return State({name: value.double() for name, value in state.items() if value.is_floating_point()})


def lost(fleet: Learners) -> set[str]:
    """Why the liar's updates were lost."""
    return {reason for row in fleet.rows for site, reason in row["losses"].items() if site == LIAR}


def test_a_poisoned_round_is_undone(tmp_path: Path) -> None:
    """With no bound on changes one update makes a model on which all diverge: the run goes back, and ends well."""
    free = {"change_factor": 0.0, "largest_change": 1e38, "largest_norm": 1e38}
    spec = make_spec(sites=4, rounds=4, settings={"lr": 0.1}, **free)

    def once(up: State, sent: State) -> State:
        done.append(1)
        return multiply(1e25)(up, sent) if len(done) == 2 else up

    done = list[int]()
    _, fleet, training = play(tmp_path, spec, {LIAR: once})
    assert {3: 1} == fleet.fallbacks
    assert "finished" == training.status().status


def test_what_a_rule_keeps(tmp_path: Path) -> None:
    """Two of seven turn their change around: the mean is lost, the median is not."""
    how = ATTACKS["sign flip"]
    kept = {
        rule: measure(tmp_path / rule, how, rule, sites=7, hostile=2, rounds=6).accuracy
        for rule in ("none", "median", "trimmed", "krum", "multi-krum")
    }
    assert all(accuracy > kept["none"] + 0.15 for rule, accuracy in kept.items() if rule != "none"), kept


def test_a_scaled_change_is_clipped(tmp_path: Path) -> None:
    """What is shorter than the bound of all and far longer than the others is cut to their length."""
    how = ATTACKS["scaled 50 times"]
    plain, clipped = (
        measure(tmp_path / rule, how, rule, sites=7, hostile=1, rounds=5).accuracy
        for rule in ("none", "norm-clip")
    )
    assert clipped > plain + 0.15
