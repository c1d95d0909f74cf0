"""Uploads kept until their round is committed, so that a repeated hand-in sends the same bytes.

Nothing here is synced: after a power loss an upload may be torn; then it counts as absent and the task is done
again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
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


_NOTE: TypeAdapter[Note] = TypeAdapter(Note)


class Outbox:
    """A folder of uploads by task key."""

    def __init__(self, folder: Path, envelopes: Envelopes, blanks: Blanks | None = None) -> None:
        """With `blanks` an upload is written over a file that is not needed any more."""
        self._folder, self._envelopes, self._blanks = folder, envelopes, blanks
        self._written: set[str] = set()
        atomic.make_folder(folder)
        # A kill in the middle of sealing leaves a draft nobody will finish.
        for draft in folder.glob(".*"):
            atomic.remove(draft)

    def draft(self, key: str) -> Path:
        """Where the trainer may write a large update before `store`."""
        return self._path(key, "draft")

    def store(self, key: str, header: Header, update: Parcel) -> Upload:
        """Close an update and take it in; what lay here under the same key is replaced."""
        with disk_full(self._folder):
            if self._blanks is not None:
                self._blanks.lay(self._path(key, "sealed"), _size_of(update))
            closed = self._envelopes.close(update, header, self._path(key, "sealed"))
            offer = Offer(key, header, closed.blob, closed.seal)
            # The words first: bytes without their words would be an upload nobody can check.
            fresh = self._path(key, "part")
            fresh.write_bytes(_NOTE.dump_json(Note(offer, closed.own)))
            atomic.move(fresh, self._path(key, "json"))
            atomic.move(self._path(key, "sealed"), self._path(key, "parcel"))
        atomic.remove(self.draft(key))
        self._written.add(key)
        return Upload(offer, self._path(key, "parcel"))

    def entry(self, key: str) -> Upload | None:
        """The upload under this key; None when there is none or when it is torn."""
        parcel = self._path(key, "parcel")
        try:
            note = _NOTE.validate_json(self._path(key, "json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        if note.offer.key != key or not parcel.exists():
            return None
        # What this very process wrote needs no second look: only a power loss can have torn a file.
        whole = key in self._written or self._envelopes.whole(note.offer, note.own, parcel)
        return Upload(note.offer, parcel) if whole else None

    def keys(self) -> tuple[str, ...]:
        """The keys something lies under, whole or torn."""
        return tuple(sorted({path.stem for path in self._folder.iterdir()}))

    def drop(self, key: str) -> None:
        """Forget an upload: its round is committed, or given up."""
        self._written.discard(key)
        if self._blanks is not None:
            self._blanks.give(self._path(key, "parcel"))
        for kind in ("json", "parcel", "part", "sealed", "draft"):
            atomic.remove(self._path(key, kind))

    def sweep(self, keep: Iterable[str]) -> None:
        """Forget all uploads but these; at start, all but `vault.upload`."""
        for key in set(self.keys()) - set(keep):
            self.drop(key)

    def _path(self, key: str, kind: str) -> Path:
        if not re.fullmatch(r"[0-9a-z-]+", key):
            raise ValueError(f"{key!r} is no task key")
        return self._folder / f"{key}.{kind}"


def _size_of(update: Parcel) -> int:
    return update.stat().st_size if isinstance(update, Path) else len(update)
