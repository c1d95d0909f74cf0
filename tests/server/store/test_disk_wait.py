"""A full disk at the coordinator: it says so, nothing is lost, and it goes on by itself."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from pathlib import Path

import pytest

from pfl_common.files import recycler
from pfl_common.files.full import is_full
from pfl_common.spec.run import Kind, Task
from pfl_server.run.training import Training
from pfl_server.store import disk_wait
from pfl_server.store.disk_wait import Room
from tests.server.support.federation import ScriptedFleet, build_spec, measure, open_run
from tests.server.support.scene import Scene

FULL = OSError(errno.ENOSPC, "no space left on device")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long here."""
    monkeypatch.setattr(disk_wait, "FIRST_PAUSE", 0.001)


async def test_what_writes_is_tried_until_there_is_room(tmp_path: Path) -> None:
    """While it waits the operator is told which disk, and what to do; after that nothing any more."""
    place, words, troubles = Room(tmp_path), [], [FULL, FULL, FULL]

    async def write(text: str, *, twice: bool) -> str:
        words.append(place.words)
        if troubles:
            raise troubles.pop()
        return text * 2 if twice else text

    assert "abab" == await place.have(write, "ab", twice=True)
    full = f"no room on the disk of {tmp_path}; make room, it goes on by itself"
    assert ["", full, full, full] == words
    assert "" == place.words


async def test_what_is_kept_for_speed_goes_before_anybody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again at once when something was given back; only then is there a pause."""
    monkeypatch.setattr(disk_wait, "FIRST_PAUSE", 0.002)
    place, troubles, kept, pauses = Room(tmp_path), [FULL, FULL, FULL], [5], []
    place.give_back = lambda: kept.pop() if kept else 0
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append((len(troubles), seconds))
        await pause(0)

    async def write() -> str:
        if troubles:
            raise troubles.pop()
        return "written"

    monkeypatch.setattr(disk_wait.asyncio, "sleep", sleep)
    assert "written" == await place.have(write)
    assert [(1, 0.002), (0, 0.004)] == pauses


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_what_finds_no_descriptor_is_tried_again(tmp_path: Path, number: int) -> None:
    """Connections are closed again by themselves; nothing is taken from the disk for it."""
    place, troubles, words, given = Room(tmp_path), [OSError(number, "none left")] * 3, [], []
    place.give_back = lambda: given.append(1) or 5

    async def write() -> str:
        words.append(place.words)
        if troubles:
            raise troubles.pop()
        return "written"

    assert "written" == await place.have(write)
    assert words[1].startswith("too many files and connections are open; let this program have more")
    assert ("", []) == (place.words, given)


async def test_a_journal_without_a_descriptor_is_waited_for(tmp_path: Path) -> None:
    """SQLite says only that it cannot open its file."""
    folder = tmp_path / "later"

    async def open_journal() -> str:
        try:
            sqlite3.connect(folder / "journal").close()
        finally:
            folder.mkdir(exist_ok=True)
        return "opened"

    assert "opened" == await Room(tmp_path).have(open_journal)


async def test_a_site_that_is_sent_away_for_want_of_a_descriptor(tmp_path: Path) -> None:
    """The operator reads what is lacking, which is not the disk."""
    place = Room(tmp_path)
    place.lack("", crowded=True)
    assert place.words.startswith("too many files and connections are open: a site was sent away; let")


async def test_a_site_that_is_sent_away_finds_room_when_it_comes_again(tmp_path: Path) -> None:
    """What is kept for speed is given back meanwhile, and nobody waits for that here."""
    place, given, loop = Room(tmp_path), asyncio.Event(), asyncio.get_running_loop()

    def give_back() -> int:
        loop.call_soon_threadsafe(given.set)
        return 5

    place.give_back = give_back
    place.lack("an update of a needs more")
    assert not given.is_set()
    await asyncio.wait_for(given.wait(), 10)


@pytest.mark.parametrize("before", [[], [FULL]])
async def test_another_trouble_is_not_waited_for(tmp_path: Path, before: list[OSError]) -> None:
    """Neither at first nor after a full disk."""
    troubles = [OSError(errno.EIO, "broken"), *before]

    async def write() -> None:
        raise troubles.pop()

    with pytest.raises(OSError, match="broken"):
        await Room(tmp_path).have(write)
    assert not is_full(OSError(errno.EIO, "broken"))


async def test_a_checkpoint_that_only_old_updates_are_in_the_way_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are given back, and the round closes without a pause."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    monkeypatch.setattr(disk_wait, "FIRST_PAUSE", 1000.0)
    books = open_run(tmp_path, build_spec(rounds=6))
    save, seen = books.checkpoints.save, []

    def fail_beside_blanks(*words: object) -> object:
        seen.append(len(list((tmp_path / "spool").glob("blanks/*"))))
        if seen[-1]:
            raise FULL
        return save(*words)

    monkeypatch.setattr(books.checkpoints, "save", fail_beside_blanks)
    await asyncio.wait_for(Training(books, ScriptedFleet(books), tick=0.01).run(), 30)
    assert ("finished", True) == (books.journal.status()[0], any(seen))
    books.journal.close()


async def test_a_checkpoint_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round whose checkpoint finds no room is not over and not lost: it closes when there is room."""
    books = open_run(tmp_path, build_spec())
    save, troubles = books.checkpoints.save, [FULL, FULL]

    def fail_first(*words: object) -> object:
        if troubles:
            raise troubles.pop()
        return save(*words)

    monkeypatch.setattr(books.checkpoints, "save", fail_first)
    await asyncio.wait_for(Training(books, ScriptedFleet(books), tick=0.01).run(), 30)
    assert {1: 1, 2: 1} == dict(books.journal.committed())
    assert "finished" == books.journal.status()[0]
    books.journal.close()


async def test_a_site_without_room_keeps_its_last_task(scene: Scene) -> None:
    """At the end nobody is given up: the model waits until the site has made room."""
    finish = Task(Kind.FINISH, 2, 2)
    asked = scene.ask("a", finish)
    await scene.take("a")
    await scene.fleet.decline("a", finish.key, "disk_full", "1 MB free\x1b[2J")
    assert not asked.done()
    (line, *_) = scene.fleet.status().sites
    assert "declined 000002-1-finish, disk_full: 1 MB free\\x1b[2J" in line.doing
    assert finish.key == (await scene.take("a")).key
    await scene.fleet.report("a", finish.key, measure("a", 2))
    assert "" == await asked
    assert "disk_full" not in scene.fleet.status().sites[0].doing
