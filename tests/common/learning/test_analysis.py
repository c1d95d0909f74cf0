"""The measures of an offline analysis have the values one can work out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from pfl_common.learning.analysis import linear_cka

torch.set_num_threads(1)

X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 1.0]])
Y = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 3.0]])


@pytest.mark.golden("dualfed", item=13)
def test_cka_golden_values() -> None:
    """Two representations of four inputs; each is like itself."""
    assert linear_cka(X, Y) == pytest.approx(0.442613, abs=1e-5)
    assert linear_cka(Y, X) == pytest.approx(0.442613, abs=1e-5)
    assert linear_cka(X, X) == pytest.approx(1.0)


@pytest.mark.golden("dualfed", item=13)
def test_cka_ignores_scale_shift_and_rotation() -> None:
    """Two models may use other axes and units for the same thing, however small."""
    angle = 0.7
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    assert linear_cka(X @ turn * 1e-6 + 5e-6, Y) == pytest.approx(0.442613, abs=1e-5)


def test_cka_of_constants_is_undefined() -> None:
    """A model that says the same of every input is like nothing."""
    constant = torch.full(
        (6, 2), 0.7, dtype=torch.float64
    )  # its mean over six rows is not 0.7 to the last bit
    assert math.isnan(linear_cka(constant, torch.eye(6)))


def test_cka_refuses_other_inputs() -> None:
    """Rows are compared one by one, so there must be equally many."""
    with pytest.raises(ValueError, match="3 and 4 inputs"):
        linear_cka(X[:3], Y)
