"""The coordinator's state after each round, on disk: two generations with hashes, never half written.

A state that was read looks into its file: what is large lies on the disk, not in memory. A file is replaced and in the
end removed, never changed, so a state that still looks into it sees what it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from pfl_common.errors import StateError
from pfl_common.files import atomic
from pfl_common.spec.digests import DIGESTS, FIRST, Digests, digest_of_file
from pfl_common.tensors import safetensors_file
from pfl_common.tensors.state import State
from pfl_server.store.spool import Spool

GENERATIONS = 2


@dataclass(frozen=True)
class Checkpoint:
    """One generation: the round it closed and the hash of its file."""

    round: int
    digest: str
    kept: frozenset[str]
    by: Digests = FIRST
    """The hash that the digest is of."""

    def is_whole(self, file: Path) -> bool:
        """Whether a file is this generation's, to the last byte."""
        return digest_of_file(file, self.by) == self.digest


class Checkpoints:
    """A folder with `round-000012.safetensors` and the note `round-000012.json` that makes it valid."""

    def __init__(self, folder: Path, spool: Spool, *, lasting: bool = True, by: Digests = FIRST) -> None:
        """`by` this hash its files are known; those of a folder that say another one are read all the same."""
        self.folder, self._spool, self._lasting, self._by = folder, spool, lasting, by
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def save(
        self, number: int, state: State, told: Callable[[str], None] = lambda digest: None
    ) -> Checkpoint:
        """Write a generation whole, then its note, then let older ones go. Its digest is told before it lasts."""
        file = self._file(number)
        draft, note = file.with_suffix(".tmp"), file.with_suffix(".json")
        with draft.open("wb") as raw:
            out = safetensors_file.Hashed(raw, self._by)
            safetensors_file.write(state, out)
        told(out.digest)
        self._settle(draft, file)
        kept = {key: update.id for key, update in sorted(state.kept.items())}
        if self._lasting:
            self._spool.sync(kept.values())
        draft.write_text(json.dumps({"round": number, self._by: out.digest, "kept": kept}, sort_keys=True))
        self._settle(draft, note)
        for old in self.generations()[GENERATIONS:]:
            self._file(old.round).with_suffix(".json").unlink()
            self._file(old.round).unlink()
        return Checkpoint(number, out.digest, frozenset(kept.values()), self._by)

    def read(self, number: int) -> State:
        """The state of a generation, as it was saved; its tensors look into the file."""
        file = self._file(number)
        kept = json.loads(file.with_suffix(".json").read_text())["kept"]
        # The library maps the file and copies a page when it is written to.
        with safe_open(file, framework="pt") as tensors:
            values = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118  # no mapping
        return State(values, kept={key: self._spool.open(name) for key, name in kept.items()})

    def generations(self) -> list[Checkpoint]:
        """The checkpoints there are, newest first."""
        found = [note for path in self.folder.glob("round-*.json") if (note := read_note(path))]
        return sorted(found, key=lambda checkpoint: -checkpoint.round)

    def load(self, upto: int) -> tuple[int, State] | None:
        """The newest whole generation of a committed round; None when the first state is all there is."""
        # A generation newer than the journal's last commit is of a round that is still open.
        found = [checkpoint for checkpoint in self.generations() if checkpoint.round <= upto]
        for checkpoint in found:
            file = self._file(checkpoint.round)
            if file.exists() and checkpoint.is_whole(file) and self._kept_are_here(checkpoint):
                return checkpoint.round, self.read(checkpoint.round)
        # While round 1 is among the generations, the spool has all updates since the first state.
        if upto > GENERATIONS:
            raise StateError(
                f"no checkpoint in {self.folder} is whole",
                expected="the newest or the one before it to match its hash",
                advice="restore the run's folder from a backup, or begin another run: --new-run with another --seed",
            )
        return None

    def drop(self, number: int) -> None:
        """Let a generation go that the run does not go on from."""
        self._file(number).with_suffix(".json").unlink(missing_ok=True)
        self._file(number).unlink(missing_ok=True)

    def _kept_are_here(self, checkpoint: Checkpoint) -> bool:
        return all(self._spool.intact(name) for name in checkpoint.kept)

    def _file(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.safetensors"

    def _settle(self, draft: Path, file: Path) -> None:
        """On return the new file is there, after a power loss too if it is to be lasting: data first, then the name."""
        if self._lasting:
            atomic.sync(draft)
        atomic.move(draft, file)
        if self._lasting:
            atomic.settle(file.parent)


def read_note(path: Path) -> Checkpoint | None:
    """A note as it was written, by either hash; one that cannot be read makes its generation as good as gone."""
    try:
        note = json.loads(path.read_text())
        by = next(name for name in DIGESTS if name in note)
        return Checkpoint(int(note["round"]), str(note[by]), frozenset(note["kept"].values()), by)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
