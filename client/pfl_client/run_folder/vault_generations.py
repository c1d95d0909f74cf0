"""The vault: the generations of a site's own state, which downloads do not replace, and the pointer to those in force.

    vault.json            the pointer: whose state this is, which generations and which upload are in force
    generations/          safetensors files the pointer names; anything else there is swept
    next.safetensors      where the trainer writes; of no meaning until `commit`
    vault.lock            held while a daemon uses the folder

Only the pointer decides. It is small and exchanged in one step, so after a crash at any instant the old
generations and the old upload are in force, or the new generation and the new upload, never a mixture.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from pfl_client.run_folder.folder_lock import FolderLock
from pfl_client.trainer_process.task_errors import DiskFull, disk_full
from pfl_common.errors import StateError
from pfl_common.files import atomic
from pfl_common.spec.messages import Mark
from pfl_common.spec.run import ClientId, Kind, Task


@dataclass(frozen=True)
class Owner:
    """The owner of a folder: one site in one run, pinned by the hash of its specification."""

    run: str
    spec: str
    site: ClientId


@dataclass(frozen=True)
class Generation:
    """One state of the site, in a file of its own."""

    mark: Mark
    file: Annotated[str, Field(pattern=r"^[0-9]+(-[0-9]+)*\.safetensors$")]


@dataclass(frozen=True)
class Pointer:
    """The generations and the upload in force, newest first; `serial` makes each generation's file name new."""

    owner: Owner
    generations: tuple[Generation, ...] = ()
    upload: str | None = None
    serial: int = 0


@cache
def _pointers() -> TypeAdapter[Pointer]:
    return TypeAdapter(Pointer)


_SMALL = 64
"""Bytes of a file without tensors, at most."""


class Vault:
    """A site's own state for one run. Only one process may have it open."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self._folder, self._store = folder, folder / "generations"
        self.draft = folder / "next.safetensors"
        """Where the trainer writes the next generation; it overwrites nothing that is in force."""
        self._file, self._fresh = folder / "vault.json", folder / "vault.json.part"
        self._lock = FolderLock(folder, "vault.lock")
        try:
            atomic.make_folder(self._store)
            self._pointer = _read_pointer(folder, owner)
            self._check_files()
            self._sweep()
        except BaseException:
            self._lock.release()
            raise

    @property
    def upload(self) -> str | None:
        """The key of the upload that belongs to the newest generation; others in the outbox are void."""
        return self._pointer.upload

    @property
    def draft_is_empty(self) -> bool:
        """Whether the trainer has written a generation without tensors: then nothing is synced for it."""
        with suppress(FileNotFoundError):
            return _holds_nothing(self.draft)
        return False

    def marks(self) -> tuple[Mark, ...]:
        """The generations there are, newest first."""
        return tuple(generation.mark for generation in self._pointer.generations)

    def is_ahead(self, task: Task) -> int:
        """The round this site has reached, if the coordinator trains an earlier one; else 0."""
        newest = max((mark.round for mark in self.marks()), default=0)
        return newest if task.kind is Kind.TRAIN and newest > task.round else 0

    def at(self, since: int) -> Path | None:
        """The state a task with this last committed round starts from; None: this site never took part."""
        generation = self._find(since)
        return None if generation is None else self._store / generation.file

    def commit(self, mark: Mark, keep_file: Path, upload: str | None, *, since: int) -> None:
        """Bring a finished task into force: its generation and, unless it was a drop-out, its upload.

        The generation the task started from stays, for the case that its round is abandoned; older ones go.
        """
        serial, start = self._pointer.serial + 1, self._find(since)
        new = Generation(mark, f"{mark.round:06d}-{mark.attempt}-{serial}.safetensors")
        # A site that keeps nothing of its own has nothing to lose in a power cut: it is welcomed as a new one then.
        lasting = not _holds_nothing(keep_file)
        generations = (new,) if start is None else (new, start)
        gone = {one.file for one in self._pointer.generations} - {one.file for one in generations}
        pointer = replace(self._pointer, generations=generations, upload=upload, serial=serial)
        try:
            with disk_full(self._folder):
                self._bring_in(keep_file, new.file, lasting=lasting)
                self._point(pointer, lasting=lasting)
        except DiskFull:
            with suppress(OSError):
                self._sweep()
            raise
        for file in gone:
            atomic.remove(self._store / file)

    def close(self) -> None:
        """Let another daemon have the folder."""
        self._lock.release()

    def _find(self, since: int) -> Generation | None:
        if since == 0:
            return None
        for generation in self._pointer.generations:
            if generation.mark.round == since:
                return generation
        rounds = ", ".join(str(mark.round) for mark in self.marks()) or "none"
        raise StateError(
            f"the coordinator counts on this site's state of round {since}, the vault holds rounds {rounds}",
            expected="the state of the last committed round",
            advice="if the state folder was exchanged or brought back from a copy, bring the newest one back",
        )

    def _bring_in(self, keep_file: Path, name: str, *, lasting: bool) -> None:
        if lasting:
            atomic.sync(keep_file)
        atomic.move(keep_file, self._store / name)
        if lasting:
            atomic.settle(self._store)

    def _point(self, pointer: Pointer, *, lasting: bool) -> None:
        """Write the pointer: it is exchanged in one step."""
        # Its parts hold nothing but plain values: asdict would copy each deeply.
        words = json.dumps(pointer, default=vars, sort_keys=True).encode()
        if lasting:
            atomic.fill(self._fresh, words)
        else:
            atomic.write_over(self._fresh, words)
        atomic.move(self._fresh, self._file)
        # From here on it is in force, even should the next line fail.
        self._pointer = pointer
        if lasting:
            atomic.settle(self._folder)

    def _check_files(self) -> None:
        for generation in self._pointer.generations:
            if not (self._store / generation.file).is_file():
                raise StateError(
                    f"the vault in {self._folder} lacks its state after round {generation.mark.round}",
                    expected=f"the file generations/{generation.file}",
                    advice="bring the folder back from a copy, or start this site anew under another name",
                )

    def _sweep(self) -> None:
        """Remove what a life that ended, or a disk that was full, has left here."""
        named = {generation.file for generation in self._pointer.generations}
        leftovers = [path for path in self._store.iterdir() if path.name not in named]
        for path in (*leftovers, self._fresh, self._folder / "next.safetensors.part"):
            atomic.remove(path)


def _holds_nothing(file: Path) -> bool:
    """Whether a file of tensors has none: its header, which says how long it is, is all there is of it."""
    with file.open("rb", buffering=0) as start:
        content = start.read(_SMALL + 1)
    if len(content) > _SMALL:
        return False
    return content[8:].strip() == b"{}" and len(content) == 8 + int.from_bytes(content[:8], "little")


def read_pointer_of(folder: Path) -> Pointer:
    """The pointer of a vault that is only looked at; ValidationError if it cannot be read."""
    return _pointers().validate_json((folder / "vault.json").read_bytes())


def _read_pointer(folder: Path, owner: Owner) -> Pointer:
    path = folder / "vault.json"
    if not path.exists():
        return Pointer(owner)
    try:
        pointer = _pointers().validate_json(path.read_bytes())
    except ValidationError as error:
        raise StateError(
            f"{path} cannot be read ({error.error_count()} errors)",
            expected="the file as pfl-client wrote it",
            advice="bring the folder back from a copy, or start this site anew under another name",
        ) from None
    for what in ("site", "run", "spec"):
        seen, wanted = getattr(pointer.owner, what), getattr(owner, what)
        if seen != wanted:
            raise StateError(
                f"the state folder {folder} belongs to {what} {seen[:20]!r}",
                expected=f"{what} {wanted[:20]!r}",
                advice="give another folder with --state, or move this one away if it is not needed",
            )
    return pointer
