"""Stand-ins inside one process: a Link without a network, a Bench without a process, envelopes without seals.

Everything on both sides of them is the code that runs over the network; nothing of a method or a round is here.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from pfl_client.connection.link import INIT, Announce, HandedIn, Marks, Tap
from pfl_client.envelopes import Closed
from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process.api import DataFolder, Done, Job, Parcel, Progress
from pfl_common.errors import Refused
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.messages import (
    Assignment,
    Blob,
    Gathering,
    Joined,
    Mark,
    Offer,
    Over,
    Receipt,
    Scores,
    Seal,
    Visited,
)
from pfl_common.spec.run import ClientId, Description, Header
from pfl_common.tensors.layout import Source, open_file
from pfl_server.envelopes import Letter, Posted
from pfl_server.sites.service import Service

WAIT_SECONDS = 3600.0


class LoopbackLink:
    """Passes a site's calls to the coordinator's Desk of the moment; files are copied as the network would."""

    def __init__(self, site: ClientId, service: Service) -> None:
        self._site, self._service = site, service

    async def join(self, description: Description) -> Joined | Gathering | None:
        """Register."""
        return await self._service.desk.join(self._site, description)

    async def visit(self) -> Visited | None:
        """Ask for the newest shared state."""
        return await self._service.desk.visit(self._site)

    async def next_task(
        self, marks: tuple[Mark, ...], before: tuple[Mark, ...] = ()
    ) -> Assignment | Over | None:
        """Wait for work."""
        return await self._service.desk.next_task(self._site, marks, wait=WAIT_SECONDS, before=before)

    def take_beside(self, blob: Blob, by: Digests = FIRST) -> bytes:
        """Nothing comes with a task: a file is copied at once."""
        return b""

    async def fetch(
        self,
        blob: Blob,
        into: Path,
        *,
        kind: str = INIT,
        by: Digests = FIRST,
        tap: Tap | None = None,
    ) -> None:
        """Copy the file; nothing is counted, since nothing crosses."""
        await asyncio.to_thread(shutil.copyfile, self._service.desk.blob(self._site, blob.digest), into)

    async def submit(self, offer: Offer, parcel: Path) -> Receipt:
        """Offer, copy, and have it verified."""
        answer = await self._service.desk.offer(self._site, offer)
        if isinstance(answer, Receipt):
            return answer
        await asyncio.to_thread(shutil.copyfile, parcel, answer.path)
        return await self._service.desk.stored(self._site, offer.key)

    async def hand_in(
        self, offer: Offer, parcel: Path, scores: Scores, *, marks: Marks, announce: Announce
    ) -> HandedIn | None:
        """Nothing crosses a network here: single calls cost no more."""
        return None

    async def report(self, key: str, scores: Scores) -> None:
        """Hand in an evaluation."""
        await self._service.desk.report(self._site, key, scores)

    async def decline(self, key: str, reason: str, words: str) -> None:
        """Say no to a task."""
        await self._service.desk.decline(self._site, key, reason, words)

    async def heartbeat(self, key: str, progress: int) -> bool:
        """Say how far the task is."""
        return self._service.desk.heartbeat(self._site, key, progress)

    async def pause(self) -> None:
        """Nobody stops one site of many in one process."""

    async def leave(self) -> None:
        """Say goodbye; a desk that never knew the site does not mind."""
        try:
            await self._service.desk.leave(self._site)
        except Refused:
            return


class LoopbackBench:
    """A site's trainer in a worker thread; sites take turns, as torch's generator belongs to the process."""

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn, self._bench = turn, Workbench()

    async def describe(self, folder: DataFolder) -> Description:
        """Look at the data."""
        async with self._turn:
            return await asyncio.to_thread(self._bench.describe, folder)

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        """Take the run's specification and read the data."""
        async with self._turn:
            await asyncio.to_thread(self._bench.open, folder, spec, init)

    async def work(self, job: Job, progress: Progress) -> Done:
        """Do a task when the turn comes; to wait for it is progress too, or the lease of a patient site would end."""
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(_tell(progress))
        try:
            async with self._turn:
                waiting.cancel()

                def tell(samples: int) -> None:
                    loop.call_soon_threadsafe(progress, samples)

                return await asyncio.to_thread(self._bench.work, job, tell)
        finally:
            waiting.cancel()

    async def close(self) -> None:
        """Nothing to end: the thread was borrowed."""


class OpenEnvelopes:
    """Both sides' envelopes without encryption: the plain bytes, named by their SHA-256."""

    card = b""

    def size(self, plain: int) -> int:
        """No more than the bytes."""
        return plain

    def plain(self, size: int) -> int:
        """No fewer than the bytes."""
        return size

    def meet(self, card: bytes) -> None:
        """One process needs no cards."""

    def post(
        self, header: Header, write: Callable[[BinaryIO], object], folder: Path, *, over: Path | None = None
    ) -> Posted:
        """Write the file and name it."""
        draft = folder / f"draft-{secrets.token_hex(8)}"
        if over is not None:
            os.replace(over, draft)
        with draft.open("wb" if over is None else "r+b") as out:
            write(out)
            out.truncate()
        blob = _blob_of(draft)
        os.replace(draft, folder / blob.digest)
        return Posted(header, blob)

    def reopen(self, posted: Posted, file: Path) -> Posted | None:
        """If a power loss has not torn it."""
        return posted if _blob_of(file) == posted.blob else None

    def address(self, posted: Posted, site: ClientId) -> Seal:
        """Everybody in the process may read it."""
        return Seal()

    def accept(self, site: ClientId, offer: Offer, opened: Letter | None = None) -> Letter:
        """As it was offered."""
        return opened or self.keep(offer)

    def keep(self, offer: Offer) -> OpenLetter:
        """As it was offered."""
        return OpenLetter(offer.blob)

    def sign(self, receipt: Receipt) -> Receipt:
        """One process believes itself."""
        return receipt

    def receive(self, header: Header, blob: Blob, seal: Seal) -> OpenLetter:
        """As it was assigned."""
        return OpenLetter(blob)

    def close(self, parcel: Parcel, header: Header, into: Path) -> Closed:
        """Write the file, or take it as it is."""
        if isinstance(parcel, Path):
            # Memory has a path that leads to it, and cannot be moved.
            (shutil.copyfile if parcel.is_symlink() else os.replace)(parcel, into)
        else:
            into.write_bytes(parcel)
        return Closed(_blob_of(into), Seal())

    def whole(self, offer: Offer, own: bytes, file: Path) -> bool:
        """By its SHA-256."""
        return _blob_of(file) == offer.blob

    def confirm(self, receipt: Receipt) -> None:
        """One process believes itself."""

    def veil(self, fingerprint: str) -> str:
        """As it is: nothing leaves the process, and two simulations of the same folders are seen to be so."""
        return fingerprint


class OpenLetter:
    """A parcel's plain bytes."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob

    def genuine(self, file: Path, start: int = 0) -> int:
        """Nobody could have changed them."""
        return file.stat().st_size

    def check(self, file: Path) -> None:
        """By its SHA-256."""
        if _blob_of(file) != self._blob:
            raise Refused("digest", "other bytes than were offered")

    def reading(self, file: Path) -> AbstractContextManager[Source]:
        """By its SHA-256, then as it is."""
        self.check(file)
        return self.source(file)

    def source(self, file: Path) -> AbstractContextManager[Source]:
        """The file itself."""
        return open_file(file)

    def read(self, file: Path) -> Parcel:
        """All of it."""
        return file.read_bytes()

    def arriving(self) -> None:
        """Nothing comes over a line here."""

    def open(self, content: bytes) -> Parcel:
        """As it is."""
        return content

    def open_early(self, into: Path | memoryview) -> None:
        """A file that is copied at once is opened afterwards."""

    def unpack_over(self, file: Path, into: Path) -> None:
        """A copy: the download itself may be asked for again."""
        shutil.copyfile(file, into)

    def unpack(self, file: Path, into: Path) -> None:
        """A copy: the download itself may be asked for again."""
        shutil.copyfile(file, into)


def _blob_of(file: Path) -> Blob:
    with file.open("rb") as content:
        return Blob(hashlib.file_digest(content, "sha256").hexdigest(), file.stat().st_size)


async def _tell(progress: Progress) -> None:
    while True:
        progress(1)
        await asyncio.sleep(0.5)
