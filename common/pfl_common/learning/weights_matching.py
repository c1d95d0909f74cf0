"""Fits a file's tensors to a participant's encoder and heads, name by name and shape by shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pfl_common.learning.method import Participant
from pfl_common.models.foreign_names import HEADS, names_in_file, settle_names


@dataclass(frozen=True)
class Fit:
    """What a participant takes from a file, and what it does not."""

    taken: Mapping[str, Tensor]
    """By the participant's names."""
    encoder: int
    """Tensors that the encoder has."""
    misfits: Mapping[str, str]
    """Tensors of another shape, by their names in the file, with both shapes."""
    missing: tuple[str, ...]
    """The participant's tensors that the file does not have."""
    unused: tuple[str, ...]
    """The file's tensors that have no place here."""

    @property
    def in_encoder(self) -> int:
        """Tensors taken for the encoder."""
        return sum(name.startswith("encoder.") for name in self.taken)

    @property
    def heads(self) -> tuple[str, ...]:
        """Heads that were taken."""
        return tuple(sorted({name.partition(".")[0] for name in self.taken} - {"encoder"}))


def fit_weights(tensors: Mapping[str, Tensor], participant: Participant, *, heads: bool = True) -> Fit:
    """Look for each tensor of the encoder and, if wanted, of each head; a head is taken whole or not at all."""
    found, own = settle_names(tensors), participant.state_dict()
    parts = ["encoder", *(head for head in HEADS if heads and hasattr(participant, head))]
    taken: dict[str, Tensor] = {}
    misfits: dict[str, str] = {}
    missing: list[str] = []
    used: set[str] = set()
    for part in parts:
        fitting: dict[str, Tensor] = {}
        targets = [name for name in own if name.startswith(f"{part}.")]
        for target in targets:
            source = next((n for n in names_in_file(target, participant.encoder) if n in found), None)
            if source is None:
                missing.append(target)
            elif found[source].shape != own[target].shape:
                misfits[source] = f"{_say(found[source])}, here {_say(own[target])}"
            else:
                fitting[target] = found[source].to(own[target].dtype)
                used.add(source)
        if part == "encoder" or len(fitting) == len(targets):
            taken |= fitting
    count = sum(name.startswith("encoder.") for name in own)
    return Fit(taken, count, misfits, tuple(missing), tuple(sorted(found.keys() - used - misfits.keys())))


@torch.no_grad()
def apply_weights(participant: Participant, taken: Mapping[str, Tensor]) -> None:
    """Give a participant the tensors taken; a second model in it, whose names are the same but deeper, has them too."""
    for name, value in participant.state_dict().items():
        source = next((one for one in _endings(name) if one in taken), None)
        if source is not None and taken[source].shape == value.shape:
            value.copy_(taken[source])


def _endings(name: str) -> Iterable[str]:
    """Its own name; of a tensor outside of encoder and heads all that may be the name of the one it is a copy of."""
    parts = name.split(".")
    last = 1 if parts[0] in ("encoder", *HEADS) else len(parts) - 1
    return (".".join(parts[start:]) for start in range(last))


def _say(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "one number"
