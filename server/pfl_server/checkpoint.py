"""The coordinator's state after each round, on disk: two generations with hashes, never half written."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from pfl_common.errors import StateError
from pfl_common.tensors import State
from pfl_server.spool import Spool

GENERATIONS = 2


@dataclass(frozen=True)
class Checkpoint:
    """One generation: the round it closed and the hash of its file."""

    round: int
    digest: str
    kept: frozenset[str]


class Checkpoints:
    """A folder with `round-000012.safetensors` and the note `round-000012.json` that makes it valid."""

    def __init__(self, folder: Path, spool: Spool) -> None:
        self._folder, self._spool = folder, spool
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def save(self, number: int, state: State) -> Checkpoint:
        """Write a generation whole, then its note, then let older generations go."""
        file = self._file(number)
        tensors = _apart(state)
        draft = file.with_suffix(".tmp")
        save_file(tensors, draft)
        _settle(draft, file)
        kept = {key: update.id for key, update in sorted(state.kept.items())}
        digest = _digest(file)
        note = file.with_suffix(".json")
        draft.write_text(json.dumps({"round": number, "sha256": digest, "kept": kept}, sort_keys=True))
        _settle(draft, note)
        for old in self.generations()[GENERATIONS:]:
            self._file(old.round).with_suffix(".json").unlink()
            self._file(old.round).unlink()
        return Checkpoint(number, digest, frozenset(kept.values()))

    def generations(self) -> list[Checkpoint]:
        """What is there, newest first."""
        found = [note for path in self._folder.glob("round-*.json") if (note := _read_note(path))]
        return sorted(found, key=lambda checkpoint: -checkpoint.round)

    def load(self, upto: int) -> tuple[int, State] | None:
        """The newest whole generation of a committed round; None when the first state is all there is."""
        # A generation newer than the journal's last commit is of a round that is still open.
        found = [checkpoint for checkpoint in self.generations() if checkpoint.round <= upto]
        for checkpoint in found:
            file = self._file(checkpoint.round)
            if file.exists() and _digest(file) == checkpoint.digest and self._kept_are_here(checkpoint):
                return checkpoint.round, self._read(file)
        # While round 1 is among the generations, the spool has all updates since the first state.
        if upto > GENERATIONS:
            raise StateError(
                f"no checkpoint in {self._folder} is whole",
                expected="the newest or the one before it to match its hash",
                advice="restore the run's folder from a backup, or begin again with --new-run",
            )
        return None

    def _kept_are_here(self, checkpoint: Checkpoint) -> bool:
        return all(self._spool.holds(name) for name in checkpoint.kept)

    def _read(self, file: Path) -> State:
        kept = json.loads(file.with_suffix(".json").read_text())["kept"]
        with safe_open(file, framework="pt") as tensors:
            values = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118  # no mapping
        return State(values, kept={key: self._spool.open(name) for key, name in kept.items()})

    def _file(self, number: int) -> Path:
        return self._folder / f"round-{number:06d}.safetensors"


def _apart(state: State) -> dict[str, Tensor]:
    """The tensors, each with memory of its own: a file has no two names for the same bytes."""
    tensors: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, value in state.items():
        own = value.detach().contiguous()
        tensors[name] = own.clone() if own.data_ptr() in places else own
        places.add(own.data_ptr())
    return tensors


def _read_note(path: Path) -> Checkpoint | None:
    """A note as it was written; one that cannot be read makes its generation as good as gone."""
    try:
        note = json.loads(path.read_text())
        return Checkpoint(int(note["round"]), str(note["sha256"]), frozenset(note["kept"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _settle(draft: Path, file: Path) -> None:
    """On return the new file is there even if the power fails: data first, then the name."""
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(draft, file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
