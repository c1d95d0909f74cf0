"""Files of weights: what is read from them, and that nothing else is."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pfl_common.errors import SettingError
from pfl_common.models.weights_file import read_weights

TENSORS = {"conv.weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(4)}


def save(held: object, file: Path) -> Path:
    """A file as torch writes it."""
    torch.save(held, file)  # noqa: TID251  # what users have
    return file


class Command:
    """An object that runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("ending", ["safetensors", "pth", "pt"])
def test_tensors_are_read(ending: str, tmp_path: Path) -> None:
    """By name, with the hash of the file, and what a safetensors file says of itself."""
    file = tmp_path / f"w.{ending}"
    if ending == "safetensors":
        save_file(TENSORS, file, {"from": "here"})
    else:
        save(OrderedDict(TENSORS) | {"head.bias": torch.nn.Parameter(torch.ones(2))}, file)
    found = read_weights(file)
    assert all(torch.equal(value, found.tensors[name]) for name, value in TENSORS.items())
    assert not any(value.requires_grad for value in found.tensors.values())
    assert hashlib.sha256(file.read_bytes()).hexdigest() == found.sha256
    assert ({"from": "here"} if ending == "safetensors" else {}) == found.about


@pytest.mark.parametrize(
    ("held", "named"),
    [
        ({"state_dict": TENSORS, "epoch": 3}, "state_dict, epoch"),
        ({**TENSORS, "lr": 0.1}, "lr"),
        ({1: torch.ones(1)}, "1"),
        ({"sparse": torch.eye(2).to_sparse()}, "sparse"),
        ([torch.ones(1)], "list"),
        (torch.ones(1), "Tensor"),
        ({}, "no tensor"),
        ({"broken": torch.tensor([1.0, float("nan")])}, "NaN"),
    ],
)
def test_what_is_not_plain_tensors_is_refused(held: object, named: str, tmp_path: Path) -> None:
    """And named."""
    with pytest.raises(SettingError) as refused:
        read_weights(save(held, tmp_path / "w.pth"))
    assert refused.value.expected and refused.value.advice
    assert named in refused.value.seen


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    """Whatever it would do."""
    file = save({"weight": torch.ones(1), "run": Command(tmp_path / "done")}, tmp_path / "w.pth")
    with pytest.raises(SettingError, match="more than tensors"):
        read_weights(file)
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.bin", "w"])
@pytest.mark.parametrize("content", [b"", b"no file of weights at all"])
def test_other_files_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    """By what they are, or by their ending."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SettingError) as refused:
        read_weights(tmp_path / name)
    assert refused.value.expected and refused.value.advice


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """By its name alone."""
    with pytest.raises(SettingError, match="--weights gone"):
        read_weights(tmp_path / "gone.pth")
