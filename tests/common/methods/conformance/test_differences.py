"""The command that tells how far a method is from its oracle looks at every tensor and at every score."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from .cases import FOUND, Case, play
from .differences import difference, largest, main
from .replay import Expected, replay
from .schedule import ROUNDS

FEDAVG = next(case for case in FOUND if case.name == "fedavg")


def expected_of(case: Case) -> Expected:
    """The oracle's side of a case, for this test to bend."""
    return copy.deepcopy(replay(case, play(case).init))


def test_a_difference_is_relative_to_the_largest_number() -> None:
    """0.5 of 4; of nothing but zeros the difference itself; what is infinite on purpose is not counted."""
    assert difference(np.array([4.0, 1.0]), torch.tensor([4.0, 1.5])) == pytest.approx(0.125)
    assert difference(np.array([0.0]), torch.tensor([0.25])) == pytest.approx(0.25)
    assert difference(np.array([-np.inf, 2.0]), torch.tensor([-torch.inf, 2.0])) == 0


def test_without_a_mistake_the_difference_is_rounding() -> None:
    """Not nothing, for two ways to add up are compared, and far from a mistake."""
    assert 0 < largest(play(FEDAVG), expected_of(FEDAVG)) < 1e-12


@pytest.mark.parametrize("place", ["state", "vault", "model", "scores", "trained", "served"])
def test_one_number_off_is_seen_wherever_it_is(place: str) -> None:
    """One array of one site or round, changed by a thousandth."""
    expected = expected_of(FEDAVG)
    name = "encoder.scale.num_batches_tracked" if place == "vault" else "head.weight"
    model, scores = expected.measured[ROUNDS]["f"]
    spoil = {
        "state": lambda: expected.states[3].update(bent(expected.states[3], name)),
        "vault": lambda: expected.vaults[5]["b"].update(bent(expected.vaults[5]["b"], name)),
        "model": lambda: model.update(bent(model, name)),
        "scores": lambda: expected.measured[ROUNDS].update(f=(model, scores * 1.001)),
        "trained": lambda: expected.trained[2].update(c=expected.trained[2]["c"] * 1.001),
        "served": lambda: expected.serving["d"].update(bent(expected.serving["d"], name)),
    }
    spoil[place]()
    assert largest(play(FEDAVG), expected) == pytest.approx(1e-3, rel=1e-2)


def bent(w: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """One array a thousandth larger."""
    return {name: w[name] * 1.001}


def test_the_command_prints_a_line_for_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    """Its name, the largest difference, over how many cases, and in which."""
    main(["fedavg"])
    name, number, cases, worst = capsys.readouterr().out.strip().split("\t")
    assert ("fedavg", "1", "fedavg") == (name, cases, worst)
    assert 0 < float(number) < 1e-12
