"""Keeps in a run's folder the tensors that its first model took from a file of weights: the file itself may go."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from pfl_common.errors import StateError
from pfl_common.files import atomic
from pfl_common.spec.run import RunSpec
from pfl_common.tensors import safetensors_file

NAME = "weights.safetensors"


def digest_of(taken: Mapping[str, Tensor]) -> str:
    """The SHA-256 of the file that `keep` writes: equal tensors give equal bytes."""
    return safetensors_file.digest_of(taken)


def keep(folder: Path, taken: Mapping[str, Tensor]) -> None:
    """Write them into the folder of a run that is being prepared, and to the disk."""
    file = folder / NAME
    with file.open("xb") as out:
        safetensors_file.write(taken, out)
    atomic.sync(file)


def read_kept(folder: Path, spec: RunSpec) -> Mapping[str, Tensor] | None:
    """What the run's first model took; None where all of it is drawn."""
    if spec.weights is None:
        return None
    file = folder / NAME
    try:
        with file.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise _not_whole(file, spec, f"cannot be read: {error.strerror}") from None
    if found != spec.weights.taken:
        raise _not_whole(file, spec, "is damaged, or of another run")
    return load_file(file)


def _not_whole(file: Path, spec: RunSpec, seen: str) -> StateError:
    source = spec.weights.source if spec.weights else ""
    return StateError(
        f"{file} {seen}",
        expected=f"the tensors that run {spec.id} took from {source}",
        advice="bring the file back from a copy of the state folder, or begin another run with --new-run",
    )
