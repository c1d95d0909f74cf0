"""Under which names a file may have a network's tensors."""

from __future__ import annotations

import pytest
from torch import nn

from pfl_common.models.foreign_names import names_in_file, settle_names


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_what_torch_has_wrapped(wrapper: str) -> None:
    """A network trained on several devices, or compiled, or both."""
    assert {"conv1.weight": 1, "module.bias": 2} == settle_names(
        {f"{wrapper}conv1.weight": 1, f"{wrapper}module.bias": 2}
    )


def test_a_module_of_that_name_is_no_wrapper() -> None:
    """As long as another tensor is not in it."""
    names = {"module.weight": 1, "other.weight": 2}
    assert names == settle_names(names)
    assert {} == settle_names({})


def test_old_names_of_densenets() -> None:
    """As they stand in torchvision's published files; other numbers stay."""
    old = "features.denseblock1.denselayer2.norm.1.weight"
    assert {"features.denseblock1.denselayer2.norm1.weight": 1} == settle_names({old: 1})
    assert {"features.norm.1.weight": 1} == settle_names({"features.norm.1.weight": 1})


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("encoder.stage2.0.shortcut.conv.weight", "layer2.0.downsample.0.weight"),
        ("encoder.body.stage2.1.bn1.bias", "layer2.1.bn1.bias"),
        ("encoder.conv.weight", "conv1.weight"),
        ("encoder.network.features.0.weight", "features.0.weight"),
        ("encoder.stage1.0.bn1.weight", "encoder.body.stage1.0.bn1.weight"),
        ("head_p.weight", "fc.weight"),
        ("head_p.weight", "head.weight"),
        ("head.0.bias", "head_g.0.bias"),
    ],
)
def test_names_elsewhere(name: str, theirs: str) -> None:
    """torchvision's, the bare network's, with or without a projector behind it, another method's; its own first."""
    found = list(names_in_file(name, nn.Identity()))
    assert name == found[0]
    assert theirs in found


def test_the_place_of_a_head() -> None:
    """A network of torchvision's says where it was."""
    encoder = nn.Identity()
    encoder.head_place = "classifier.6"
    assert "classifier.6.bias" in names_in_file("head.bias", encoder)
