"""A site's heartbeats end with its task, and not in its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from pfl_client.connection.link import Link
from pfl_client.daemon import heartbeat
from pfl_client.daemon.heartbeat import Heart


class SlowLink:
    """A line whose heartbeats take their time to be called off."""

    def __init__(self) -> None:
        self.asked, self.called_off, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def heartbeat(self, key: str, progress: int) -> bool:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.called_off.set()
            await self.may_end.wait()
            raise
        return True


async def test_a_site_that_is_told_to_stop_as_its_task_ends_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While the last heartbeat is called off: else it would go on until it is killed."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.0)
    link, went_on = SlowLink(), []

    async def work() -> None:
        async with Heart(cast(Link, link), "000001-1-train", tmp_path / "none"):
            await link.asked.wait()
        went_on.append("to the next task")

    working = asyncio.create_task(work())
    await link.called_off.wait()
    working.cancel()
    link.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert [] == went_on


class ListeningLink:
    """A line that hears how far a site is; after the second time the site's work may end."""

    def __init__(self, download: Path) -> None:
        self.heard, self.over, self._download = [], asyncio.Event(), download

    async def heartbeat(self, key: str, progress: int) -> bool:
        self.heard.append(progress)
        self._download.unlink(missing_ok=True)
        if len(self.heard) > 1:
            self.over.set()
        return True


async def test_a_download_whose_file_serves_for_something_else_has_come(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A site's progress never falls: the coordinator would take it for a task that begins anew."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.0)
    file = tmp_path / "download"
    file.write_bytes(b"12345")
    link = ListeningLink(file)
    async with Heart(cast(Link, link), "000001-1-train", file):
        await link.over.wait()
    assert [5, 5] == link.heard[:2]


async def test_a_task_that_is_over_soon_has_no_heartbeat(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not even one that is begun and called off."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 60.0)
    before = asyncio.all_tasks()
    async with Heart(cast(Link, SlowLink()), "000001-1-train", tmp_path / "none"):
        for _ in range(3):
            await asyncio.sleep(0)
        assert before == asyncio.all_tasks()
