"""Uploads kept until their round is committed, so that a repeated hand-in sends the same bytes.

Nothing here is synced: after a power loss an upload may be torn; then it counts as absent and the task is done
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pfl_client.envelopes import Envelopes
from pfl_client.trainer_process.api import Parcel
from pfl_client.trainer_process.task_errors import disk_full
from pfl_common.files import atomic
from pfl_common.files.recycler import Blanks
from pfl_common.spec.messages import Offer
from pfl_common.spec.run import Header


@dataclass(frozen=True)
class Note:
    """An upload's description, and the wrap with which this site can open it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")

    offer: Offer
    own: bytes


@dataclass(frozen=True)
class Upload:
    """An upload in the outbox: its note and its bytes."""

    offer: Offer
    parcel: Path


@cache
def _notes() -> TypeAdapter[Note]:
    return TypeAdapter(Note)


class Outbox:
    """A folder of uploads by task key."""

    def __init__(self, folder: Path, envelopes: Envelopes, blanks: Blanks | None = None) -> None:
        """With `blanks` an upload is written over a file that is not needed any more."""
        self._folder, self._envelopes, self._blanks = folder, envelopes, blanks
        self._written: dict[str, Upload] = {}
        """What this very process wrote needs no second look: only a power loss can have torn a file."""
        atomic.make_folder(folder)
        # A kill in the middle of sealing leaves a draft nobody will finish.
        for draft in folder.glob(".*"):
            atomic.remove(draft)
        self._found = {path.stem for path in folder.iterdir()}
        """Keys under which something else lies: of an earlier life, or of an upload that could not be finished."""

    def store(self, key: str, header: Header, update: Parcel) -> Upload:
        """Close an update and take it in; what lay here under the same key is replaced."""
        parcel, note = self._path(key, "parcel"), self._path(key, "json")
        self._written.pop(key, None)
        self._found.add(key)
        with disk_full(self._folder):
            if self._blanks is not None:
                self._blanks.lay(parcel, _size_of(update))
            closed = self._envelopes.close(update, header, parcel)
            upload = Upload(Offer(key, header, closed.blob, closed.seal), parcel)
            # The words last: without them, or with those of other bytes, it is no upload.
            atomic.write_over(note, _notes().dump_json(Note(upload.offer, closed.own)))
        self._found.discard(key)
        self._written[key] = upload
        return upload

    def entry(self, key: str) -> Upload | None:
        """The upload under this key; None when there is none or when it is torn."""
        written = self._written.get(key)
        parcel = written.parcel if written else self._path(key, "parcel")
        if not parcel.exists():
            return None
        if written:
            return written
        try:
            note = _notes().validate_json(self._path(key, "json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        whole = note.offer.key == key and self._envelopes.whole(note.offer, note.own, parcel)
        return Upload(note.offer, parcel) if whole else None

    def keys(self) -> tuple[str, ...]:
        """The keys something lies under, whole or torn."""
        return tuple(sorted(self._found.union(self._written)))

    def drop(self, key: str) -> None:
        """Forget an upload: its round is committed, or given up."""
        written = self._written.pop(key, None)
        parcel, note = written.parcel if written else self._path(key, "parcel"), self._path(key, "json")
        given = self._blanks is not None and self._blanks.give(parcel)
        for path in [note] if written else self._folder.glob(f"{key}.*"):
            atomic.remove(path)
        if not given:
            atomic.remove(parcel)
        self._found.discard(key)

    def sweep(self, keep: Iterable[str]) -> None:
        """Forget all uploads but these; at start, all but `vault.upload`."""
        for key in self._found.union(self._written).difference(keep):
            self.drop(key)

    def _path(self, key: str, kind: str) -> Path:
        if not re.fullmatch(r"[0-9a-z-]+", key):
            raise ValueError(f"{key!r} is no task key")
        return self._folder / f"{key}.{kind}"


def _size_of(update: Parcel) -> int:
    return update.stat().st_size if isinstance(update, Path) else len(update)
