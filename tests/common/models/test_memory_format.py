"""A network's convolutions are laid out as the run says, and keep their values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common import models
from pfl_common.errors import SettingError
from pfl_common.models.memory_format import arrange, check_arrangeable

torch.set_num_threads(1)


def build(name: str) -> nn.Module:
    """The encoder of a backbone for small colour pictures."""
    return models.build(name, shape=(3, 16, 16), classes=2).encoder


def test_convolutions_lie_as_the_run_says() -> None:
    """Their values are the same, other tensors stay, and what comes out is the same but for roundings."""
    network, x = build("resnet8").eval(), torch.rand(4, 3, 16, 16)
    before, usual = {name: value.clone() for name, value in network.state_dict().items()}, network(x)
    arrange(network, "contiguous")
    assert all(value.is_contiguous() for value in network.state_dict().values())
    arrange(network, "channels-last")
    kernel = network.get_parameter("stage1.0.conv1.weight")
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert not kernel.is_contiguous()
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    made = network(x)
    torch.testing.assert_close(made, usual, rtol=1e-4, atol=1e-5)


def test_a_network_without_convolutions_is_refused() -> None:
    """The word would be taken and change nothing."""
    for name in ("cnn", "resnet8"):
        check_arrangeable(build(name), name, "channels-last")
    check_arrangeable(build("mlp"), "mlp", "contiguous")
    with pytest.raises(SettingError, match="mlp") as error:
        check_arrangeable(build("mlp"), "mlp", "channels-last")
    assert "leave --memory-format out" in error.value.advice
