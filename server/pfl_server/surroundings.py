"""What lies around a run and is slow to look at: the disk, the newest checkpoint, when certificates end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic

from pfl_common.run import ClientId

LOOK_SECONDS = 30.0
"""A look is good for so long: however often somebody asks, the disk is not kept busy."""

Ends = Callable[[Sequence[ClientId]], Mapping[str, float]]
"""When certificates end, by whose they are, given the registered sites."""


class Surroundings:
    """What was seen at the last look."""

    def __init__(self, state: Path, ends: Ends, *, clock: Callable[[], float] = monotonic) -> None:
        self._state, self._find_ends, self._clock = state, ends, clock
        self._looked, self._looking = float("-inf"), asyncio.Lock()
        self._run: Path | None = None
        self.numbers: Mapping[str, float] = {}
        """By the number's name."""
        self.ends: Mapping[str, float] = {}

    async def look(self, run: Path | None, sites: Sequence[ClientId]) -> None:
        """Look again, in a thread, if the last look is too old."""
        async with self._looking:
            if run == self._run and self._clock() - self._looked < LOOK_SECONDS:
                return
            self.numbers = await asyncio.to_thread(_look, self._state, run)
            self.ends = await asyncio.to_thread(self._find_ends, sites)
            self._looked, self._run = self._clock(), run


def _look(state: Path, run: Path | None) -> dict[str, float]:
    found = {"pfl_disk_free_bytes": float(shutil.disk_usage(state).free)}
    if run is None:
        return found
    found["pfl_disk_used_bytes"] = float(sum(_size(path) for path in run.rglob("*")))
    written = [_moment(path) for path in (run / "checkpoints").glob("round-*.json")]
    if written:
        found["pfl_checkpoint_timestamp_seconds"] = max(written)
    return found


def _size(path: Path) -> int:
    """What a file takes on the disk; one that goes away meanwhile takes nothing."""
    try:
        return path.lstat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _moment(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
