"""Uploads that wait for their round to be committed: a repeated hand-in sends the same bytes, not new ones.

Nothing here is synced: after a power loss an upload may be torn, which its digest shows; then it counts as
absent and the task is done again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pfl_client import disk
from pfl_client.declined import disk_full
from pfl_common.messages import Blob, Offer
from pfl_common.run import Header

_OFFER: TypeAdapter[Offer] = TypeAdapter(Offer)


@dataclass(frozen=True)
class Upload:
    """An upload as it lies here: what is said of it, and its bytes."""

    offer: Offer
    parcel: Path


class Outbox:
    """A folder of uploads by task key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        disk.make_folder(folder)

    def draft(self, key: str) -> Path:
        """Where the bytes of a new upload are written before `store`."""
        return self._path(key, "draft")

    def store(self, key: str, header: Header, draft: Path) -> Upload:
        """Take a finished file in; what lay here under the same key is replaced."""
        with draft.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        offer = Offer(key, header, Blob(digest, draft.stat().st_size))
        with disk_full(self._folder):
            # The words first: bytes without their words would be an upload nobody can check.
            fresh = self._path(key, "part")
            fresh.write_text(json.dumps(asdict(offer), sort_keys=True), encoding="utf-8")
            disk.move(fresh, self._path(key, "json"))
            disk.move(draft, self._path(key, "parcel"))
        return Upload(offer, self._path(key, "parcel"))

    def entry(self, key: str) -> Upload | None:
        """The upload under this key; None when there is none or when it is torn."""
        parcel = self._path(key, "parcel")
        try:
            offer = _OFFER.validate_json(self._path(key, "json").read_bytes())
            with parcel.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, ValidationError):
            return None
        return Upload(offer, parcel) if offer.key == key and offer.blob.digest == digest else None

    def keys(self) -> tuple[str, ...]:
        """The keys something lies under, whole or torn."""
        return tuple(sorted({path.stem for path in self._folder.iterdir()}))

    def drop(self, key: str) -> None:
        """Forget an upload: its round is committed, or given up."""
        for kind in ("json", "parcel", "part", "draft"):
            disk.remove(self._path(key, kind))

    def sweep(self, keep: Iterable[str]) -> None:
        """Forget all uploads but these; at start, all but `vault.upload`."""
        for key in set(self.keys()) - set(keep):
            self.drop(key)

    def _path(self, key: str, kind: str) -> Path:
        if not re.fullmatch(r"[0-9a-z-]+", key):
            raise ValueError(f"{key!r} is no task key")
        return self._folder / f"{key}.{kind}"
