"""The coordinator's state after each round, on disk: two generations with hashes, never half written.

A state that was read looks into its file: what is large lies on the disk, not in memory. A file is changed only when no
state looks into it any more: then a later generation, or an update, is written over it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from weakref import WeakSet

from torch import Tensor

from pfl_common.errors import StateError
from pfl_common.files import atomic
from pfl_common.spec.digests import DIGESTS, FIRST, Digests, digest_of_file
from pfl_common.tensors import safetensors_file
from pfl_common.tensors.sent_state import SENT
from pfl_common.tensors.state import State
from pfl_server.store.spool import Spool

GENERATIONS = 2
LONG = 1 << 20
"""Bytes of a state that is not hashed and written in one go."""


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
        self._looked_into: dict[int, WeakSet[mmap]] = {}
        """The mappings of each file, by its number on the disk, that states still look into."""
        self._notes: dict[str, tuple[int, Checkpoint | None]] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def save(
        self,
        number: int,
        state: State,
        told: Callable[[str], None] = lambda digest: None,
        sent: State | None = None,
    ) -> Checkpoint:
        """Write a generation whole, then its note, then let older ones go. Its digest is told before it lasts. What was
        `sent` in its round lies beside the state.
        """
        state = state | sent.within(SENT) if sent else state
        file = self._file(number)
        note, (draft, words) = (
            file.with_suffix(".json"),
            (file.with_suffix(kind) for kind in (".tmp", ".note")),
        )
        digest = self._write(state, draft, told)
        kept = {key: update.id for key, update in sorted(state.kept.items())}
        if self._lasting:
            atomic.sync(draft)
            self._spool.sync(kept.values())
        words.write_text(json.dumps({"round": number, self._by: digest, "kept": kept}, sort_keys=True))
        self._settle((draft, file), (words, note))
        for old in self.generations()[GENERATIONS:]:
            self._file(old.round).with_suffix(".json").unlink()
            self._notes.pop(self._file(old.round).with_suffix(".json").name, None)
            self._let_go(self._file(old.round))
        return Checkpoint(number, digest, frozenset(kept.values()), self._by)

    def _write(self, state: State, draft: Path, told: Callable[[str], None]) -> str:
        """Write a state's file and tell its digest: before, if it is long, since who waits for the digest need not wait
        for the file.
        """
        size, digest = sum(tensor.nbytes for tensor in state.values()), ""
        if size > LONG:
            told(digest := safetensors_file.digest_of(state, self._by))
        self._spool.blanks.lay(draft, size)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as raw:
            hashed = safetensors_file.Hashed(raw, self._by)
            safetensors_file.write(state, raw if digest else hashed)
            raw.truncate()
        if not digest:
            told(digest := hashed.digest)
        return digest

    def read(self, number: int) -> State:
        """The state of a generation, as it was saved; its tensors look into the file."""
        kept = json.loads(self._file(number).with_suffix(".json").read_text())["kept"]
        own = {n: value for n, value in self._look_into(number).items() if not n.startswith(f"{SENT}.")}
        return State(own, kept={key: self._spool.open(name) for key, name in kept.items()})

    def read_sent(self, number: int) -> State:
        """What was sent in the round of a generation, in the same way."""
        return State(self._look_into(number)).under(SENT)

    def _look_into(self, number: int) -> dict[str, Tensor]:
        file = self._file(number)
        values, memory = safetensors_file.read_mapped(file)
        self._looked_into.setdefault(file.stat().st_ino, WeakSet()).add(memory)
        return values

    def generations(self) -> list[Checkpoint]:
        """The checkpoints there are, newest first."""
        found = [note for path in self.folder.glob("round-*.json") if (note := self._read_note(path))]
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

    def _read_note(self, path: Path) -> Checkpoint | None:
        """A note, read once for each time that it is written."""
        try:
            written = path.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        known = self._notes.get(path.name)
        if known is None or known[0] != written:
            known = self._notes[path.name] = written, read_note(path)
        return known[1]

    def _let_go(self, file: Path) -> None:
        """Remove a file, or keep it to be written over if no state looks into it."""
        looking = self._looked_into.pop(file.stat().st_ino, None)
        if looking or not self._spool.blanks.give(file):
            file.unlink()

    def _kept_are_here(self, checkpoint: Checkpoint) -> bool:
        return all(self._spool.intact(name) for name in checkpoint.kept)

    def _file(self, number: int) -> Path:
        return self.folder / f"round-{number:06d}.safetensors"

    def _settle(self, content: tuple[Path, Path], words: tuple[Path, Path]) -> None:
        """On return both files are there, after a power loss too if that is to be lasting. The folder is synced once
        for both names: a note whose file has not got its name belongs to no round that was committed.
        """
        if self._lasting:
            atomic.sync(words[0])
        atomic.move(*content)
        atomic.move(*words)
        if self._lasting:
            atomic.settle(self.folder)


def read_note(path: Path) -> Checkpoint | None:
    """A note as it was written, by either hash; one that cannot be read makes its generation as good as gone."""
    try:
        note = json.loads(path.read_text())
        by = next(name for name in DIGESTS if name in note)
        return Checkpoint(int(note["round"]), str(note[by]), frozenset(note["kept"].values()), by)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
