"""Disk, checkpoints and certificates are looked at, but not at every scrape."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pfl_common.identity import Authority
from pfl_server.process import find_ends
from pfl_server.status import probe
from pfl_server.status.probe import LOOK_SECONDS, Surroundings
from tests.client.support.sealed_line import Members


async def test_what_lies_around_a_run(tmp_path: Path) -> None:
    """Free space, what the run takes, and when its newest checkpoint was written."""
    run = tmp_path / "runs" / "run-1"
    (run / "checkpoints").mkdir(parents=True)
    (run / "spool").write_bytes(bytes(100_000))
    for number in (1, 2):
        note = run / "checkpoints" / f"round-00000{number}.json"
        note.write_text("{}")
        os.utime(note, (number * 1000, number * 1000))
    seen = Surroundings(tmp_path, lambda sites: {"authority": float(len(sites))})
    await seen.look(run, ("a", "b"))
    assert 2000.0 == seen.numbers["pfl_checkpoint_timestamp_seconds"]
    assert 100_000 <= seen.numbers["pfl_disk_used_bytes"] < 300_000
    assert seen.numbers["pfl_disk_free_bytes"] > 0
    assert {"authority": 2.0} == seen.ends


async def test_a_look_is_good_for_a_while(tmp_path: Path) -> None:
    """However often somebody asks, the disk is not kept busy."""
    now, looks = 0.0, 0

    def ends(sites: object) -> dict[str, float]:
        nonlocal looks
        looks += 1
        return {}

    seen = Surroundings(tmp_path, ends, clock=lambda: now)
    await seen.look(None, ())
    now = LOOK_SECONDS - 1
    await seen.look(None, ())
    assert 1 == looks
    now = LOOK_SECONDS
    await seen.look(None, ())
    await until(lambda: looks == 2)


async def until(event: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if event():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen within 20 s")


async def test_a_folder_that_goes_away_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts of parcels come and go while the folder is read: the rest is counted."""
    (tmp_path / "drafts").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "spool").write_bytes(bytes(100_000))
    scan = os.scandir

    def look_late(path: str | Path) -> object:
        if Path(path).name == "drafts":
            raise FileNotFoundError(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", look_late)
    seen = Surroundings(tmp_path, lambda sites: {})
    await seen.look(tmp_path, ())
    assert 100_000 <= seen.numbers["pfl_disk_used_bytes"] < 200_000


async def test_what_cannot_be_looked_at_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not answer is no reason to show no numbers."""
    now = 0.0
    seen = Surroundings(tmp_path, lambda sites: {"authority": 2.0}, clock=lambda: now)
    await seen.look(None, ())
    known = seen.numbers
    tried = threading.Event()

    def fail(path: Path) -> None:
        tried.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "disk_usage", fail)
    now = LOOK_SECONDS
    await seen.look(None, ())
    await until(tried.is_set)
    await until(lambda: seen._looking is None)
    assert (known, {"authority": 2.0}) == (seen.numbers, seen.ends)


@pytest.fixture
async def busy() -> AsyncIterator[None]:
    """All threads of the event loop have something long to do."""
    loop, free = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(2))
    jobs = [loop.run_in_executor(None, free.wait, 60) for _ in range(4)]
    yield
    free.set()
    await asyncio.gather(*jobs)


async def test_nobody_waits_for_a_thread_that_is_busy(tmp_path: Path, busy: None) -> None:
    """Sealing and summing may take all threads for minutes: the first look has its own."""
    seen = Surroundings(tmp_path, lambda sites: {"authority": 2.0})
    async with asyncio.timeout(20):
        await seen.look(None, ())
    assert seen.numbers["pfl_disk_free_bytes"] > 0


async def test_nobody_waits_for_a_look_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one waits shortly, the next ones not at all, and one look is under way at a time."""
    monkeypatch.setattr(probe, "FIRST_LOOK_SECONDS", 0.01)
    now, looks, done = 0.0, 0, threading.Event()

    def ends(sites: object) -> dict[str, float]:
        nonlocal looks
        looks += 1
        done.wait(60)
        return {"authority": float(looks)}

    seen = Surroundings(tmp_path, ends, clock=lambda: now)
    async with asyncio.timeout(20):
        for _ in range(3):
            await seen.look(None, ())
            now += LOOK_SECONDS
    await until(lambda: looks > 0)
    assert {} == seen.ends
    done.set()
    await until(lambda: seen.ends == {"authority": 1.0})
    assert 1 == looks


def test_the_first_card_that_ends(tmp_path: Path) -> None:
    """Of the registered sites alone; a card that has run out is not forgotten, one never seen is unknown."""
    members = Members(tmp_path)
    for site in ("a", "b"):
        members.keyring(site)
    authority: Authority = members.authority
    known = {"authority": 5.0}
    assert {"authority": 5.0} == find_ends(authority, known, ())
    ends = find_ends(authority, known, ("a", "b", "stranger"))
    card = authority.card_of("a", now=datetime.now(UTC))
    assert abs(ends["site_soonest"] - card.ends.timestamp()) < 5
    assert datetime.now(UTC) + timedelta(days=20) < datetime.fromtimestamp(ends["site_soonest"], UTC)
    for path in tmp_path.rglob("*.card"):
        path.unlink()
    assert ends == find_ends(authority, known, ("a", "b"))


def test_a_card_that_cannot_be_read(tmp_path: Path) -> None:
    """It is passed over: the other certificates end all the same."""
    members = Members(tmp_path)
    for site in ("a", "b"):
        members.keyring(site)
    (damaged,) = tmp_path.rglob("a.card")
    damaged.write_bytes(b"no card")
    (foreign,) = tmp_path.rglob("b.card")
    foreign.chmod(0o644)
    assert {"authority": 5.0} == find_ends(members.authority, {"authority": 5.0}, ("a", "b"))
