"""The parcels that sites may fetch, on disk: each is sealed once, into a file named by its digest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pfl_common.errors import Refused
from pfl_common.files.recycler import Blanks
from pfl_common.spec.manifest import Manifest
from pfl_common.spec.messages import Blob
from pfl_common.spec.run import ClientId, Header
from pfl_common.tensors import codec
from pfl_common.tensors.encoded import Changes
from pfl_common.tensors.state import State
from pfl_server.envelopes import Envelopes, Posted


class Shelf:
    """A folder of files to fetch, named by digest, each described by a note `<name>.json`.

    A restarted coordinator finds a parcel again by its header and for whom it is, and serves the same bytes on.
    """

    def __init__(self, folder: Path, envelopes: Envelopes, blanks: Blanks | None = None) -> None:
        """With `blanks` a parcel is written over a file that is not needed any more, and becomes one."""
        self.folder, self.envelopes, self._blanks = folder, envelopes, blanks
        self._placing = threading.Lock()
        self._addressed: dict[str, frozenset[ClientId]] = {}
        """For whom each parcel is, "" for all; in one process equal bytes have one name, whoever they are for."""
        self._placed: dict[str, Posted] = {}
        """What was put here in this life, by its note's name."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Parcels get their place only with their note: what has none yet may not be taken for what has none any more.
        self._drafts = folder / "drafts"
        shutil.rmtree(self._drafts, ignore_errors=True)
        self._drafts.mkdir(mode=0o700)
        for note in folder.glob("*.json"):
            if (said := _read(note)) is not None:
                self._address(said.blob.digest, _site_of(note))

    def put(  # noqa: PLR0913  # what a parcel holds, and for whom it is
        self,
        state: State,
        header: Header,
        manifest: Manifest,
        *,
        who: str = "*",
        site: ClientId = "",
        changes: Changes | None = None,
    ) -> Posted:
        """Close a parcel into a file, or find the one closed before a restart; with a `site`, for it alone. What
        crosses as a change is written by `changes`.
        """
        groups = tuple(sorted({e.group for e in manifest if e.group and e.name in state}))
        header = replace(header, groups=groups)
        note = self.folder / f"{_name(header, who)}.json"
        found = self._again(note, header)
        if found is not None:
            return found
        # Two threads may be closing equal bytes, which have one name: each has a place of its own.
        with tempfile.TemporaryDirectory(dir=self._drafts) as own:
            over = self._lay(Path(own, "over"), manifest, groups)
            posted = self.envelopes.post(
                header, lambda out: codec.encode(state, manifest, out, changes), Path(own), over=over
            )
            draft = Path(own, "note")
            draft.write_text(json.dumps(_plain(posted) | ({"site": site} if site else {}), sort_keys=True))
            with self._placing:
                os.replace(draft, note)
                os.replace(Path(own, posted.blob.digest), self.folder / posted.blob.digest)
                self._placed[note.name] = replace(posted, key=None)
                self._address(posted.blob.digest, site)
        return posted

    def path(self, digest: str) -> Path:
        """The file with these bytes."""
        path = self.folder / digest
        if len(digest) != 64 or not digest.isalnum() or not path.exists():
            raise Refused("unknown_blob", "there are no such bytes here (any more): ask for the task again")
        return path

    def path_for(self, site: ClientId, digest: str) -> Path:
        """The file with these bytes, if they are not other sites' alone."""
        if not self._addressed.get(digest, {""}) & {site, ""}:
            raise Refused("unknown_blob", f"{site} asks for bytes that were made for another site")
        return self.path(digest)

    def keep_only(self, number: int, attempt: int) -> None:
        """Remove all parcels but the first model and those of one attempt, and whatever has no note."""
        # Not while a parcel gets its place: its note would be looked for before it is there, its bytes after.
        with self._placing:
            kept = {self._drafts.name}
            for note in self.folder.glob("*.json"):
                posted = self._placed.get(note.name) or _read(note)
                if posted is not None and _place_of(posted) in ((number, attempt), (0, 0)):
                    kept |= {note.name, posted.blob.digest}
            self._placed = {name: posted for name, posted in self._placed.items() if name in kept}
            for path in self.folder.iterdir():
                if path.name not in kept:
                    self._let_go(path)
                    self._addressed.pop(path.name, None)

    def _lay(self, place: Path, manifest: Manifest, groups: tuple[str, ...]) -> Path | None:
        """A file to write a parcel over, if there is one."""
        if self._blanks is None:
            return None
        size = self.envelopes.size(codec.size_of(manifest, groups))
        return place if self._blanks.lay(place, size) else None

    def _let_go(self, path: Path) -> None:
        """Remove a file, or keep it to be written over; whoever still reads it reads on what it was."""
        # First its name: from then on nobody can begin to.
        nameless = self._drafts / path.name
        os.replace(path, nameless)
        if self._blanks is None or not self._blanks.give_unread(nameless):
            nameless.unlink()

    def _address(self, digest: str, site: ClientId) -> None:
        self._addressed[digest] = self._addressed.get(digest, frozenset()) | {site}

    def _again(self, note: Path, header: Header) -> Posted | None:
        posted = _read(note)
        if posted is None or posted.header != header or not (self.folder / posted.blob.digest).exists():
            return None
        return self.envelopes.reopen(posted, self.folder / posted.blob.digest)


def _site_of(note: Path) -> str:
    """The one site that a parcel is for; empty if it is for all, and in notes of earlier releases."""
    with suppress(OSError, ValueError):
        return str(json.loads(note.read_text()).get("site", ""))
    return ""


def _place_of(posted: Posted) -> tuple[int, int]:
    return posted.header.round, posted.header.attempt


def _name(header: Header, who: str) -> str:
    return "note-" + hashlib.sha256(f"{header.to_json()}\0{who}".encode()).hexdigest()[:32]


def _plain(posted: Posted) -> dict[str, object]:
    return {
        "header": posted.header.to_json(),
        "digest": posted.blob.digest,
        "size": posted.blob.size,
        "signature": posted.signature.hex(),
        "own": posted.own.hex(),
    }


def _read(note: Path) -> Posted | None:
    """A note as it was written; a torn one makes its parcel as good as gone."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads(note.read_text())
        return Posted(
            Header.from_json(said["header"]),
            Blob(str(said["digest"]), int(said["size"])),
            signature=bytes.fromhex(said["signature"]),
            own=bytes.fromhex(said["own"]),
        )
    return None
