"""Frozen tensors, in every method: they do not change, they cross in the first model alone, the rest learns.

A new method is found and tried without a line here.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from pfl_common.learning.freezing import find_frozen

from .cases import FOUND, Case
from .federation import Federation, Habits, History
from .schedule import SITES

ROUNDS_PLAYED = 2
NAMES = ("encoder.mix", "encoder.scale")
FROZEN = Habits(watched=False, frozen=NAMES)
STILL = {
    "encoder.mix.weight",
    *(
        f"encoder.scale.{name}"
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    ),
}


each_method = pytest.mark.parametrize("case", FOUND, ids=str)


@cache
def play(case: Case) -> History:
    """Two rounds and the end, with a frozen beginning of the encoder."""
    federation = Federation(case.module(), case.settings, FROZEN)
    history = federation.begin(ROUNDS_PLAYED)
    federation._finish()
    return history


def is_still(name: str) -> bool:
    """Whether a name is that of a frozen tensor, or of a copy or a branch of one."""
    return any(f".{name}".endswith(f".{one}") for one in STILL)


@each_method
def test_they_cross_in_the_first_model_alone(case: Case) -> None:
    """No parcel of any task has a place for them, neither up nor down, and no vault keeps them."""
    history = play(case)
    first = {entry.name for entry in history.manifests["init"]}
    assert STILL <= first
    later = {entry.name for key, one in history.manifests.items() if key != "init" for entry in one}
    assert set() == {name for name in later if is_still(name)}
    kept = {name for vault in history.vaults[ROUNDS_PLAYED].values() for name in vault}
    assert set() == {name for name in kept if is_still(name)}


@each_method
def test_they_do_not_change(case: Case) -> None:
    """Neither where they are nor in a second model; and what a site predicts with has all of them."""
    history = play(case)
    found = 0
    for state in [t.after for _, trained in history.trained for t in trained.values()] + list(
        history.serving.values()
    ):
        for name in filter(is_still, state):
            found += 1
            assert torch.equal(history.init[name], state[name]), name
            original = name[name.index("encoder.") :]
            assert torch.equal(history.init[original], state[name]), f"{name} is no copy of {original}"
    assert found >= len(STILL) * (7 + len(SITES))
    assert all(history.init.keys() == serving.keys() for serving in history.serving.values())


@each_method
def test_the_rest_learns(case: Case) -> None:
    """What comes behind them is trained at every site that trains."""
    history = play(case)
    for _, trained in history.trained:
        for site, done in trained.items():
            assert not torch.equal(done.before["encoder.out.weight"], done.after["encoder.out.weight"]), site


@each_method
def test_a_copy_is_found(case: Case) -> None:
    """Every frozen tensor of a participant is one of the encoder's, or says of which it is a copy."""
    federation = Federation(case.module(), case.settings, FROZEN)
    frozen = find_frozen(federation._build())
    assert STILL == set(frozen.values())
    assert not {name for name in frozen if name != frozen[name]} & {
        name for name, _ in federation._build().named_parameters()
    }
