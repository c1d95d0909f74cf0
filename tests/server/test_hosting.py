"""A run in the life of a coordinator, before it has begun."""

import asyncio
from pathlib import Path

import pytest

from pfl_common.errors import Refused
from pfl_common.run import Description
from pfl_deploy.loopback import OpenEnvelopes
from pfl_server.hosting import RunHost
from pfl_server.settings import ServerSettings
from pfl_server.view import View


async def test_stopped_before_it_began(tmp_path: Path) -> None:
    """The operator stops while one of two sites is awaited: no run is made, and the site that waits is told."""
    host = RunHost(ServerSettings(method="fedavg", sites=2, state=tmp_path / "state"), OpenEnvelopes())
    running = asyncio.create_task(host.run())
    joining = asyncio.create_task(
        host.reception.join("a", Description(shape=(4,), classes=("x", "y"), samples=3, kind="array"))
    )
    await asyncio.sleep(0)
    host.reception.stop()
    with pytest.raises(Refused, match="before it had begun"):
        await joining
    await running
    assert ("stopped", "stopped") == (host.status().status, View(host, lambda sites: {}).state)
    assert "info" == host.status().events[0].level
    assert [] == list((tmp_path / "state" / "runs").iterdir())
    host.runs.close()
