"""Brings a run's files to the site: the first model once, and each task's download."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from pfl_client.connection.link import INIT, Link, Tap
from pfl_client.daemon.retry import Retry
from pfl_client.daemon.status import Watch
from pfl_client.envelopes import Letter
from pfl_client.run_folder.folder import RunFolder
from pfl_client.trainer_process.task_errors import disk_full
from pfl_common.spec.digests import FIRST, Digests
from pfl_common.spec.messages import Blob, Joined


class Fetching:
    """Fetches over one link; what breaks off goes on where it was."""

    def __init__(self, link: Link, retry: Retry, watch: Watch, state: Path) -> None:
        """`state` is the site's folder, on the disk that may have no room."""
        self._link, self._retry, self._watch, self._state = link, retry, watch, state

    async def bring(
        self, blob: Blob, file: Path, *, kind: str, by: Digests = FIRST, tap: Tap | None = None
    ) -> None:
        """Bring bytes into a file; `by` this hash they are known. `tap` is shown what comes."""
        with disk_full(self._state):
            await self._retry.until_answered(lambda: self._link.fetch(blob, file, kind=kind, by=by, tap=tap))

    async def bring_first_model(self, folder: RunFolder, joined: Joined, letter: Letter) -> None:
        """Bring the run's first model where the trainer reads it; waits for room on a full disk."""
        await self._retry.until_room(
            partial(self._bring_init, folder, joined, letter), folder.downloads.forget_opened
        )

    async def _bring_init(self, folder: RunFolder, joined: Joined, letter: Letter) -> None:
        folder.first_model.check_room(joined)
        self._watch.doing = "downloading"
        file, by = folder.downloads.file(joined.init), folder.spec.digests
        await self.bring(joined.init, file, kind=INIT, by=by)
        self._watch.doing = "opening"
        await asyncio.to_thread(folder.first_model.settle, joined, letter)
