"""A coordinator process with few descriptors, and far more connections than it has: honest sites play on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pfl_common.files.descriptors import raise_limit
from tests.hostile.raw_line import Idle, connect_idly, hang_up
from tests.hostile.siege import Siege, read_log

DESCRIPTORS = 256
EACH = 400
"""Connections to each port."""
LOUD = 60_000
"""Bytes of log that a few rounds and some refusals take; accept errors wrote as much in a tenth of a second."""


async def test_idle_connections_beyond_all_limits(tmp_path: Path) -> None:
    """Twelve hundred of them to three ports of a process with 256 descriptors: rounds are committed, no site ends, new
    connections of those who are known find their way, the log stays short.
    """
    raise_limit()  # of this process, which holds the other ends
    async with Siege(tmp_path, sites=2, descriptors=DESCRIPTORS) as siege:
        await siege.play(2)
        idle: list[Idle] = []
        try:
            for port in ("control", "enrolment", "http"):
                idle += await connect_idly(siege.port(port), EACH)
            seen = await siege.watch(1.0)
            await siege.play(3)
            assert seen.descriptors < DESCRIPTORS
            page = await asyncio.to_thread(siege.machine.read, f"{siege.found.addresses.http}/healthz")
            assert "ok\n" == page
        finally:
            hang_up(idle)
        log = siege.machine.said("server")
        assert len(log) < LOUD, log[-2000:]
        assert [] == [line for line in read_log(siege) if line.get("level") == "error"]
