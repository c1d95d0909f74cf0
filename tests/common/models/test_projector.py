"""The projector has the published layers in the published order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pfl_common.errors import SettingError
from pfl_common.models import ProjectorShape, build_projector

torch.set_num_threads(1)

LINEAR, RELU, BN = nn.Linear, nn.ReLU, nn.BatchNorm1d


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (ProjectorShape(), [LINEAR, RELU, BN, LINEAR, BN]),
        (ProjectorShape(depth=1), [LINEAR, BN]),
        (ProjectorShape(depth=3), [LINEAR, RELU, BN, LINEAR, RELU, BN, LINEAR, BN]),
        (ProjectorShape(bn=False), [LINEAR, RELU, LINEAR]),
        (ProjectorShape(depth=1, bn=False), [LINEAR]),
        (ProjectorShape(depth=3, bn=False), [LINEAR, RELU, LINEAR, RELU, LINEAR]),
    ],
)
def test_layers(shape: ProjectorShape, expected: list[type[nn.Module]]) -> None:
    """ReLU precedes normalisation, no ReLU follows the last layer, bn=False removes normalisation."""
    assert expected == [type(layer) for layer in build_projector(12, shape)]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (ProjectorShape(), 264_448),
        (ProjectorShape(hidden=64), 512 * 64 + 64 + 128 + 64 * 512 + 512 + 1024),
        (ProjectorShape(depth=1), 512 * 512 + 512 + 1024),
        (ProjectorShape(depth=1, hidden=7), 512 * 512 + 512 + 1024),
        (ProjectorShape(depth=3), 264_448 + 256 * 256 + 256 + 512),
        (ProjectorShape(bn=False), 264_448 - 512 - 1024),
    ],
)
def test_parameters(shape: ProjectorShape, expected: int) -> None:
    """The default has 264,448 parameters for 512 features; the others follow from their layers."""
    assert expected == sum(parameter.numel() for parameter in build_projector(512, shape).parameters())


def test_names_and_width() -> None:
    """The layers' names are fixed, and a vector leaves as wide as it came."""
    projector = build_projector(6, ProjectorShape(hidden=4))
    expected = ["fc1", "relu1", "bn1", "fc2", "bn2"]
    assert expected == [name for name, _ in projector.named_children()]
    assert torch.Size((3, 6)) == projector(torch.zeros(3, 6)).shape


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"depth": 0}, "depth is 0\n  expected: 1, 2 or 3"),
        ({"depth": 4}, "depth is 4\n  expected: 1, 2 or 3"),
        ({"hidden": 0}, "hidden width is 0\n  expected: 1 or more"),
    ],
)
def test_impossible_shapes(wrong: dict[str, int], words: str) -> None:
    """A depth or width that no projector has is refused in words."""
    with pytest.raises(SettingError, match=words):
        ProjectorShape(depth=wrong.get("depth", 2), hidden=wrong.get("hidden", 256))
