"""Networks without numbers: their shapes are those of real ones, and nothing is drawn or loaded for them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from pfl_common import models
from pfl_common.models.without_numbers import without_numbers

ALONE = """
import sys
from torch import nn
from pfl_common import models
from pfl_common.models.without_numbers import without_numbers
with without_numbers():
    models.build("resnet8", shape=(1, 8, 8), classes=2)
    nn.Embedding(4, 3)
    nn.init.trunc_normal_(nn.Linear(2, 2).weight)
assert "torch._dynamo" not in sys.modules
"""


@pytest.mark.parametrize("name", ["cnn", "resnet8"])
def test_shapes_are_those_of_a_real_one(name: str) -> None:
    """Tensor by tensor."""
    real = models.build(name, shape=(3, 16, 16), classes=4)
    with without_numbers():
        empty = models.build(name, shape=(3, 16, 16), classes=4)
    expected = {key: value.shape for key, value in real.encoder.state_dict().items()}
    assert expected == {key: value.shape for key, value in empty.encoder.state_dict().items()}
    assert {"meta"} == {value.device.type for value in empty.encoder.state_dict().values()}


def test_what_has_numbers_is_drawn_for_as_ever() -> None:
    """A tensor of another device, named while it is open."""
    with without_numbers():
        drawn = torch.zeros(50, device="cpu").normal_()
    assert drawn.std() > 0


def test_the_compiler_is_not_loaded() -> None:
    """It takes a second of a coordinator's start."""
    subprocess.run([sys.executable, "-c", ALONE], check=True)
