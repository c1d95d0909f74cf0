"""Before admission: checks the site's data and waits for a coordinator that is not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import structlog

from pfl_client.trainer_process.api import Bench, DataFolder, TrainerLost
from pfl_common.errors import Unavailable
from pfl_common.spec.run import Description

log = structlog.get_logger("pfl.site")
Answer = TypeVar("Answer")

LOOK_SECONDS = 0.5
"""How often it is looked whether the coordinator is there by now."""
SOON_SECONDS, LOOK_SOON_SECONDS = 5.0, 0.1
"""The same at first, and for how long: one that was started together with its sites takes a second or two."""


async def look_at(folder: DataFolder, state: Path, bench: Bench) -> Description:
    """Describe the data; unusable data are an error before any waiting. Large arrays lie below `state` meanwhile. The
    trainer stays: to load it once more would take longer than all else before the first round.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="pfl-", dir=state) as place:
        if folder.cache_bytes:
            folder = replace(folder, cache=Path(place) / "cache")
        try:
            return await bench.describe(folder)
        except TrainerLost as lost:
            log.warning("the trainer ended, once more", how=str(lost))
            return await bench.describe(folder)


async def wait(ask: Callable[[], Awaitable[Answer]], absent: Unavailable, *, seconds: float) -> Answer:
    """Ask until there is an answer, or for so long; then what was missing is the error."""
    clock = asyncio.get_running_loop().time
    soon, end = clock() + SOON_SECONDS, clock() + seconds
    if seconds:
        words = {"seen": absent.seen, "what_to_do": absent.advice, "for_seconds": round(seconds, 1)}
        log.warning(
            "the coordinator is not there yet, waiting for it", **{k: v for k, v in words.items() if v}
        )
    while clock() < end:
        pause = LOOK_SOON_SECONDS if clock() < soon else LOOK_SECONDS
        await asyncio.sleep(min(pause, max(0.0, end - clock())))
        try:
            return await ask()
        except Unavailable as still:
            absent = still
    raise absent
