"""Looks from time to time at things that are slow to find: the disk, the newest checkpoint, certificates' ends."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import structlog

from pfl_common.errors import PflError
from pfl_common.spec.run import ClientId

log = structlog.get_logger("pfl.surroundings")

LOOK_SECONDS = 30.0
"""A look is good for so long: however often somebody asks, the disk is not kept busy."""
FIRST_LOOK_SECONDS = 2.0
"""The first question about a run waits at most so long for what is seen of it."""

Ends = Callable[[Sequence[ClientId]], Mapping[str, float]]
"""When certificates end, by whose they are, given the registered sites."""


class Surroundings:
    """The results of the last look."""

    def __init__(self, state: Path, ends: Ends, *, clock: Callable[[], float] = monotonic) -> None:
        self._state, self._find_ends, self._clock = state, ends, clock
        # A thread of its own: the event loop's are all taken while a model is sealed, verified and summed.
        self._eyes = ThreadPoolExecutor(1, thread_name_prefix="surroundings")
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._run: tuple[Path | None, ...] = ()
        """Which run was looked at last; empty before the first look."""
        self.numbers: Mapping[str, float] = {}
        """By the number's name."""
        self.ends: Mapping[str, float] = {}

    async def look(self, run: Path | None, sites: Sequence[ClientId]) -> None:
        """Begin to look again if the last look is too old; waited for, shortly, is only the first look at a run."""
        known = self._run == (run,)
        if self._looking is None and not (known and self._clock() - self._looked < LOOK_SECONDS):
            self._looking = asyncio.create_task(self._see(run, sites))
        if self._looking is not None and not known:
            await asyncio.wait({self._looking}, timeout=FIRST_LOOK_SECONDS)

    async def _see(self, run: Path | None, sites: Sequence[ClientId]) -> None:
        loop = asyncio.get_running_loop()
        try:
            self.numbers = await loop.run_in_executor(self._eyes, _look, self._state, run)
            self.ends = await loop.run_in_executor(self._eyes, self._find_ends, sites)
        except (OSError, PflError) as error:
            # What was seen last is better than no numbers at all.
            log.warning("the state folder could not be looked at", why=str(error))
        finally:
            self._looked, self._run, self._looking = self._clock(), (run,), None


def _look(state: Path, run: Path | None) -> dict[str, float]:
    found = {"pfl_disk_free_bytes": float(shutil.disk_usage(state).free)}
    if run is None:
        return found
    found["pfl_disk_used_bytes"] = float(_taken(run))
    written = [_moment(path) for path in (run / "checkpoints").glob("round-*.json")]
    if written:
        found["pfl_checkpoint_timestamp_seconds"] = max(written)
    return found


def _taken(folder: Path) -> int:
    """The bytes in a folder; a folder in it that disappears meanwhile is skipped, which rglob would not do."""
    return sum(
        _size(Path(place, name)) for place, folders, files in os.walk(folder) for name in (*folders, *files)
    )


def _size(path: Path) -> int:
    """The bytes that a file takes on the disk; 0 if it has disappeared meanwhile."""
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _moment(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
