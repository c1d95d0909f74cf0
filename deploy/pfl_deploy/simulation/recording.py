"""Copies the parts of a run's folder that a replay needs, without disturbing the run, and compares checkpoints."""

from __future__ import annotations

import filecmp
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from pfl_common.errors import SettingError
from pfl_deploy.report.sources.coordinator import copy_journal
from pfl_server.store.checkpoints import read_note


@dataclass(frozen=True)
class Copy:
    """A copied journal, and copied checkpoints by the round they closed."""

    journal: Path
    checkpoints: dict[int, Path]


def take_copy(run: Path, into: Path) -> Copy:
    """Copy the journal and all whole checkpoints of a run, also of one that is going on."""
    if not (run / "journal.sqlite").is_file():
        raise SettingError(
            f"{run} is not the folder of a run",
            expected="a folder with a journal.sqlite, as a coordinator keeps it",
            advice="name the one below the coordinator's state folder: pfl-state/runs/RUN",
        )
    # The checkpoints first: of a round that is committed in the meantime the journal then knows.
    checkpoints = _copy_checkpoints(run / "checkpoints", into)
    return Copy(copy_journal(run / "journal.sqlite", into), checkpoints)


def find_difference(first: Path, second: Path) -> str | None:
    """The first tensor, by name, in which two files of tensors differ; None: they are the same bytes."""
    if filecmp.cmp(first, second, shallow=False):
        return None
    with safe_open(first, framework="pt") as one, safe_open(second, framework="pt") as other:
        names = set(one.keys()), set(other.keys())
        for name in sorted(names[0] | names[1]):
            if name not in names[0] or name not in names[1]:
                return f"{name} is in one of them only"
            if found := _difference(one.get_tensor(name), other.get_tensor(name)):
                return f"the first tensor that differs is {name} ({found})"
    return "all tensors are equal, their files are not"


def _difference(one: Tensor, other: Tensor) -> str:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{one.dtype} {tuple(one.shape)} and {other.dtype} {tuple(other.shape)}"
    # As bytes: not-a-number is equal to itself here, and zero is not equal to minus zero.
    if torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8)):
        return ""
    unequal, most = int((one != other).sum()), float((one.double() - other.double()).abs().max())
    return f"{unequal} of {one.numel()} elements, by up to {most:.3g}"


def _copy_checkpoints(folder: Path, into: Path) -> dict[int, Path]:
    copied: dict[int, Path] = {}
    for note in sorted(folder.glob("round-*.json")):
        copy = into / f"recorded-{note.stem}.safetensors"
        try:
            found = read_note(note)
            shutil.copyfile(note.with_suffix(".safetensors"), copy)
        except FileNotFoundError:
            # The run went on and let this generation go; a newer one is there.
            continue
        if found is not None and found.is_whole(copy):
            copied[found.round] = copy
    return copied
