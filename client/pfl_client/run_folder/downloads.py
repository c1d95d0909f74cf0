"""The downloads of a run: verifies their sender, keeps them as files, opens them for the trainer.

    downloads/DIGEST       a download as it comes, sealed
    downloads/opened.raw   a very large one, opened for the trainer
    downloads/update.raw   a very large update, as the trainer writes it
    received.jsonl         what the coordinator signed, a line for each download of a task

Files are written over those of the task before: fresh pages on a disk cost more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pfl_client.connection import partial_file
from pfl_client.connection.link import Tap
from pfl_client.envelopes import Envelopes, Letter
from pfl_client.run_folder.handover import Handover
from pfl_client.trainer_process.api import Parcel
from pfl_client.trainer_process.large_parcels import goes_as_file
from pfl_client.trainer_process.task_errors import Tampered, disk_full
from pfl_common.errors import Refused
from pfl_common.files import atomic
from pfl_common.files.recycler import Blanks
from pfl_common.spec.manifest import Manifest, full_size
from pfl_common.spec.messages import Assignment, Blob, Seal
from pfl_common.spec.run import Header

REUSED_LIMIT = 256 << 20
"""Opened parcels up to this size stay on the disk between tasks, to be written over."""


class Downloads:
    """The files of downloads in a run's folder."""

    def __init__(self, run: Path, envelopes: Envelopes, blanks: Blanks) -> None:
        """`run` is the run's folder."""
        self._run, self._folder, self._words = run, run / "downloads", run / "received.jsonl"
        self._envelopes, self._blanks = envelopes, blanks
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._early: Letter | None = None
        """Whose content lies opened, whole and for no trainer yet."""
        self._opened = Handover(self._folder / "opened.raw")
        self._update = Handover(self._folder / "update.raw")
        for draft in self._folder.glob(".*"):
            draft.unlink()

    def accept(self, header: Header, blob: Blob, seal: Seal) -> Letter:
        """Verify who sent a download, before its first byte."""
        try:
            return self._envelopes.receive(header, blob, seal)
        except Refused as refused:
            raise tampered(refused) from None

    def keep_word(self, assignment: Assignment) -> None:
        """Keep the coordinator's signature, as evidence should it sign two different parcels under one header."""
        blob, seal = assignment.blob, assignment.seal
        signed = {"digest": blob.digest, "bytes": blob.size, "wrap": seal.wrap.hex()}
        words = {"header": assignment.header.to_json(), "signature": seal.signature.hex()}
        text = json.dumps({"task": assignment.key, **words, **signed}, sort_keys=True) + "\n"
        with disk_full(self._run):
            atomic.append(self._words, text.encode())

    def file(self, blob: Blob) -> Path:
        """Where these bytes are fetched to; a part that is already there is kept."""
        return self._folder / blob.digest

    def begin(self, blob: Blob) -> Path:
        """The same file, laid over an older download's where there is one."""
        file = self.file(blob)
        with disk_full(self._run):
            partial_file.lay(self._blanks, file, blob.size)
        return file

    @contextmanager
    def opening(self, letter: Letter, blob: Blob) -> Iterator[Tap | None]:
        """While a large download is fetched, it is opened as it comes: what was just hashed is still at hand."""
        self._early = None
        size = self.opened_size(blob)
        early = (
            letter.open_early(self._opened.memory(size) or self._opened.place(size))
            if goes_as_file(size)
            else None
        )
        if early is None:
            yield None
            return
        complete = False
        try:
            yield early.take
            complete = True
        finally:
            complete = early.close() and complete
        # Only now: whoever fetched it has compared its digest.
        self._early = letter if complete else None

    def open(self, letter: Letter, blob: Blob) -> Parcel:
        """The content of a download for the trainer: a large one in a file, which the next is written over."""
        file, size, early = self.file(blob), self.opened_size(blob), self._early
        # Once: what a trainer that died has done to the file, nobody knows.
        self._early = None
        if early is letter:
            return self._opened.place(size)
        try:
            if not goes_as_file(size):
                return letter.read(file)
            letter.unpack_over(file, self._opened.place(size))
            return self._opened.place(size)
        except Refused as refused:
            file.unlink(missing_ok=True)
            raise tampered(refused) from None

    def open_held(self, letter: Letter, content: bytes) -> Parcel:
        """The content of a small download that came with its task: it needs no file."""
        try:
            return letter.open(content)
        except Refused as refused:
            raise tampered(refused) from None

    def opened_size(self, blob: Blob) -> int:
        """The bytes of its content."""
        return self._envelopes.plain(blob.size)

    def check_size(self, blob: Blob, manifest: Manifest) -> None:
        """Refuse a download that says it is larger than all its tensors, before room is made, or waited for."""
        size, most = self.opened_size(blob), full_size(manifest)
        if size > most:
            raise Tampered(
                f"a download would have {size} bytes, and its tensors have {most}",
                expected="no more than the run's own tensors",
                advice="tell the operator: this coordinator is not to be trusted, or of another release",
            )

    def lacking(self, blob: Blob) -> int:
        """The bytes still to be fetched."""
        return _growth(self.file(blob), blob.size)

    def needed_to_open(self, blob: Blob) -> int:
        """The room its content still needs on the disk."""
        return self._opened.lacking(self.opened_size(blob))

    def needed_for_update(self, size: int) -> int:
        """The room an update of this size still needs before it is sealed."""
        return self._update.lacking(size)

    def place_for_update(self, manifest: Manifest) -> Path:
        """Where the trainer writes an update with these tensors, if it is too large for a message."""
        return self._update.place(full_size(manifest))

    def given_back(self, blob: Blob) -> int:
        """The room that `make_way` will give back."""
        size = self.opened_size(blob)
        return blob.size + size if size > REUSED_LIMIT else 0

    def make_way(self, blob: Blob) -> None:
        """The trainer has read it all: the update that is closed now is written over its file, so that one file serves
        for both ways. A download of gigabytes gives its place back.
        """
        file = self.file(blob)
        if not file.exists():  # it came with its task
            return
        if self._opened.let_go(beyond=REUSED_LIMIT) or self._blanks.give(file):
            partial_file.forget(file)

    def clean_up(self, blob: Blob) -> None:
        """Forget a download whose task is done."""
        file = self.file(blob)
        self._blanks.give(file)
        partial_file.forget(file)
        for place in (self._opened, self._update):
            place.let_go(beyond=REUSED_LIMIT)

    def forget_opened(self) -> bool:
        """Give back what is kept only because overwriting is fast; tells whether there was anything."""
        self._early = None
        given = [place.let_go() for place in (self._opened, self._update)]
        return self._blanks.clear() > 0 or any(given)


def tampered(refused: Refused) -> Tampered:
    """A download that does not verify, in words."""
    return Tampered(
        f"a download is not what the coordinator sealed for this site: {refused.words}",
        expected="its own bytes, under its signature",
        advice="tell the operator: something between coordinator and site changes what passes",
    )


def _growth(file: Path, size: int) -> int:
    """The bytes that a file still needs to reach `size`."""
    return max(0, size - (file.stat().st_size if file.exists() else 0))
