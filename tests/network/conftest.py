"""What the tests on real sockets share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.network.cutting_proxy import CuttingProxy
from tests.network.federation import Federation


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    """A coordinator that listens."""
    folder = tmp_path / "federation"
    folder.mkdir()
    one = Federation(folder)
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def proxy(federation: Federation) -> AsyncIterator[tuple[CuttingProxy, int]]:
    """A line to it that can be cut, and its port."""
    one = CuttingProxy(federation.port)
    port = await one.start()
    yield one, port
    await one.stop()
