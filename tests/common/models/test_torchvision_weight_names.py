"""torchvision's published weights, as it describes them itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from pfl_common.errors import SettingError
from pfl_common.models.torchvision_weight_names import find_published, is_name

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize(
    ("name", "backbone", "side"),
    [
        ("ResNet18_Weights.IMAGENET1K_V1", "resnet18", 224),
        ("ResNet18_Weights.DEFAULT", "resnet18", 224),
        ("ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1", "vit_b_16", 384),
        ("EfficientNet_B1_Weights.IMAGENET1K_V1", "efficientnet_b1", 240),
    ],
)
def test_network_and_preprocessing(name: str, backbone: str, side: int) -> None:
    """What the pictures are cut to, and the mean and deviation of each channel."""
    found = find_published(name)
    assert f"torchvision:{backbone}" == found.backbone
    assert (side, side) == found.size
    assert IMAGENET == (found.mean, found.deviation)
    assert name.replace("DEFAULT", "IMAGENET1K_V1") == found.name


@pytest.mark.parametrize("name", ["GoogLeNet_Weights.IMAGENET1K_V1", "Inception_V3_Weights.IMAGENET1K_V1"])
def test_networks_that_turn_pictures_back(name: str) -> None:
    """They were trained with values from -1 to 1."""
    found = find_published(name)
    assert ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)) == (found.mean, found.deviation)


def test_the_file_is_where_torchvision_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And its name begins its hash."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    found = find_published("ResNet18_Weights.IMAGENET1K_V1")
    assert tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth" == found.file
    assert "f37072fd" == found.hash_start


def test_a_wrong_name_is_refused_with_those_near_it() -> None:
    """Not with all hundred."""
    with pytest.raises(SettingError, match="ResNet18_Weights") as refused:
        find_published("ResNet18_Weights.IMAGENET1K_V2")
    assert refused.value.expected and refused.value.advice
    assert "ResNet18_Weights.IMAGENET1K_V1" in refused.value.expected
    assert len(refused.value.expected) < 300


def test_the_form_of_a_name() -> None:
    """A file is none."""
    assert is_name("ResNet18_Weights.IMAGENET1K_V1")
    assert not any(map(is_name, ("resnet18.pth", "w.safetensors", "a/ResNet18_Weights.DEFAULT", "")))
