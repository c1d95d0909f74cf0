"""What sites fetch: each parcel is encoded once, into a file named by its digest."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pfl_common import codec
from pfl_common.errors import Refused
from pfl_common.halves import ServerHalf
from pfl_common.messages import Assignment, Blob
from pfl_common.run import ClientId, Header, Manifest, RunSpec, Task, manifest_hash
from pfl_common.tensors import State


class Shelf:
    """A folder of files that may be fetched, by SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._drafts = folder, itertools.count()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for draft in folder.glob("draft-*"):
            draft.unlink()

    def put(self, state: State, manifest: Manifest) -> tuple[Blob, tuple[str, ...]]:
        """Encode a parcel into a file; gives its name and the optional groups it holds."""
        # Two threads may be writing the same state for two kinds of parcel: each has a draft of its own.
        draft = self.folder / f"draft-{next(self._drafts)}"
        with draft.open("wb") as out:
            groups = codec.encode(state, manifest, out)
        with draft.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = draft.stat().st_size
        os.replace(draft, self.folder / digest)
        return Blob(digest, size), groups

    def path(self, digest: str) -> Path:
        """The file with these bytes."""
        path = self.folder / digest
        if len(digest) != 64 or not digest.isalnum() or not path.exists():
            raise Refused("unknown_blob", "there are no such bytes here (any more): ask for the task again")
        return path

    def clear(self, keep: set[str]) -> None:
        """Remove all files but those named and those being written."""
        for path in self.folder.iterdir():
            if path.name not in keep and not path.name.startswith("draft-"):
                path.unlink()


class Downloads:
    """The parcels of one state: one for all, or one per site when the method says PER_CLIENT."""

    def __init__(self, spec: RunSpec, half: ServerHalf, *, per_client: bool, shelf: Shelf) -> None:
        self._spec, self._half, self._per_client, self._shelf = spec, half, per_client, shelf
        self._made: dict[tuple[str, ...], asyncio.Task[tuple[Blob, tuple[str, ...]]]] = {}

    async def assignment(self, state: State, client: ClientId, task: Task) -> Assignment:
        """A task with its parcel; a newcomer (`since` = 0) gets what the method welcomes with."""
        manifest = self._spec.manifest(task.kind, task.phase, "down")
        who = client if self._per_client else "*"
        key = (
            ("welcome", task.phase)
            if task.since == 0
            else ("send", task.kind, task.phase, who, str(task.since))
        )
        if key not in self._made:
            parcel = self._parcel(state, client, task)
            self._made[key] = asyncio.create_task(asyncio.to_thread(self._put, parcel, manifest))
        try:
            blob, groups = await asyncio.shield(self._made[key])
        except Exception:
            # A disk that was full may have room by now: the next asking tries anew.
            self._made.pop(key, None)
            raise
        header = Header(
            run=self._spec.id,
            round=task.round,
            attempt=task.attempt,
            kind=task.kind,
            phase=task.phase,
            direction="down",
            sender="coordinator",
            manifest=manifest_hash(manifest),
            groups=groups,
        )
        return Assignment(replace(task), header, blob)

    def _parcel(self, state: State, client: ClientId, task: Task) -> Callable[[], State]:
        # Mixing for one site can be heavy (FedCAC reads kept updates): it happens in the worker thread.
        if task.since == 0:
            return lambda: self._half.welcome(state)
        return lambda: self._half.send(state, client, task)

    def _put(self, parcel: Callable[[], State], manifest: Manifest) -> tuple[Blob, tuple[str, ...]]:
        return self._shelf.put(parcel(), manifest)
