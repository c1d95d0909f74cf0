"""Reads a file of weights: tensors by name, as safetensors or as a state dict that torch saved. Nothing else is taken
from it, whatever it holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pfl_common.errors import SettingError
from pfl_common.tensors.update_check import find_infinite

SAVED_BY_TORCH = (".pth", ".pt")
_SAFE = ".safetensors"
_MOST_NAMED = 3
_SHOWN = 80


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights as it was read."""

    sha256: str
    tensors: Mapping[str, Tensor]
    about: Mapping[str, str]
    """What it says of itself: a safetensors file's metadata."""


def digest(file: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_weights(file: Path) -> WeightsFile:
    """The tensors of a file; an error says what it holds instead."""
    try:
        if file.suffix == _SAFE:
            tensors, about = _read_safe(file)
        elif file.suffix in SAVED_BY_TORCH:
            tensors, about = _read_saved(file), {}
        else:
            raise _no_weights(file, f"ends in {file.suffix or 'nothing'}")
        found = WeightsFile(digest(file), tensors, about)
    except OSError as error:
        raise _no_weights(file, f"cannot be read: {error.strerror or type(error).__name__}") from None
    if not tensors:
        raise _no_weights(file, "holds no tensor")
    odd = next((name for name, value in tensors.items() if _is_narrow(value)), None)
    if odd is not None:
        kind = str(tensors[odd].dtype).removeprefix("torch.")
        raise _no_weights(file, f"holds numbers of type {kind} in {odd[:_SHOWN]!r}")
    broken = find_infinite({name: value for name, value in tensors.items() if value.is_floating_point()})
    if broken is not None:
        raise _no_weights(file, f"holds NaN or infinity in {broken!r}")
    return found


def _read_safe(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(file, "pt") as content:
            names = list(content.keys())
            return {name: content.get_tensor(name) for name in names}, dict(content.metadata() or {})
    except SafetensorError as error:
        raise _no_weights(file, f"is damaged, or no safetensors file ({error})") from None


def _read_saved(file: Path) -> dict[str, Tensor]:
    try:
        # The one place where a pickle is opened: published weights are such files. With `weights_only` torch's reader
        # makes tensors and plain containers and calls nothing else; what is no plain tensor is refused below.
        held = torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251
    except OSError:
        raise
    except (
        Exception
    ) as error:  # whatever a damaged or hostile file makes of the reader; its words are not ours to repeat
        raise _no_weights(file, f"holds more than tensors, or is damaged ({type(error).__name__})") from None
    if not isinstance(held, Mapping):
        raise _no_weights(file, f"holds a {type(held).__name__}, no tensors by name")
    odd = [str(name) for name, value in held.items() if not (isinstance(name, str) and _is_plain(value))]
    if odd:
        more = f" and {len(odd) - _MOST_NAMED} more" if len(odd) > _MOST_NAMED else ""
        raise _no_weights(file, f"holds what is no plain tensor: {', '.join(odd[:_MOST_NAMED])}{more}")
    return {name: value.detach() for name, value in held.items()}


def _is_narrow(value: Tensor) -> bool:
    """Whether its numbers are floats with which nothing can be computed: those of 8 bits and less."""
    return value.is_floating_point() and value.dtype.itemsize < 2


def _is_plain(value: object) -> bool:
    return (
        type(value) in (Tensor, nn.Parameter)
        and isinstance(value, Tensor)
        and value.layout == torch.strided
        and (not value.is_quantized)
    )


def _no_weights(file: Path, seen: str) -> SettingError:
    return SettingError(
        f"--weights {file.name} {seen}",
        expected="tensors by name: a .safetensors file, or a state dict as .pth or .pt",
        advice="of a checkpoint with more in it, keep the network's alone: "
        "safetensors.torch.save_file(network.state_dict(), 'weights.safetensors')",
    )
