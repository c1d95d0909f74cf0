"""The files of downloads: where each lies, what it still needs, and what is given back when."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from pathlib import Path

import pytest

from pfl_client.connection import partial_file
from pfl_client.daemon import retry
from pfl_client.run_folder import downloads, handover
from pfl_client.run_folder.downloads import Downloads
from pfl_client.run_folder.outbox import Outbox, Upload
from pfl_client.trainer_process.api import Parcel
from pfl_common.errors import Refused
from pfl_common.files.recycler import WORTH, Blanks
from pfl_common.spec.manifest import Entry
from pfl_common.spec.messages import Blob, Over
from pfl_common.spec.run import Header
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.scripted_site import FINISHED, Line, Trainer, assign, put_together

BLOB = Blob("d" * 64, 10)
UPDATE = (Entry("w", "uint8", (7,)),)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)


@pytest.fixture
def files(tmp_path: Path) -> Downloads:
    """Those of a run that has just begun."""
    return Downloads(tmp_path, OpenEnvelopes(), Blanks(tmp_path / "blanks", most=1 << 30))


async def live(line: Line, trainer: Trainer, state: Path) -> Over:
    """A site's whole life."""
    return await asyncio.wait_for(put_together(line, trainer, state).run(), 20)


def test_what_a_killed_site_had_opened_goes(files: Downloads, tmp_path: Path) -> None:
    """Only what is still sealed stays for the next start: it is fetched on."""
    folder = tmp_path / "downloads"
    for name in ("opened.raw", "update.raw", ".draft", BLOB.digest):
        (folder / name).write_bytes(b"12345")
    again = Downloads(tmp_path, OpenEnvelopes(), Blanks(tmp_path / "blanks", most=1 << 30))
    assert [BLOB.digest] == [path.name for path in folder.iterdir()]
    assert (5, 0o700) == (again.lacking(BLOB), folder.stat().st_mode & 0o777)


def test_the_room_that_is_still_needed(
    files: Downloads, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is there already is not counted again, and what goes as a message needs no place on the disk."""
    assert (10, 0, 0, 0) == (
        files.lacking(BLOB),
        files.needed_to_open(BLOB),
        files.needed_for_update(7),
        files.given_back(BLOB),
    )
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", 5)
    monkeypatch.setattr(handover, "SHARED_LIMIT", 5)
    monkeypatch.setattr(downloads, "REUSED_LIMIT", 9)
    (tmp_path / "downloads" / "opened.raw").write_bytes(b"1234")
    files.place_for_update(UPDATE).write_bytes(b"1")
    assert (6, 6, 0, 20) == (
        files.needed_to_open(BLOB),
        files.needed_for_update(7),
        files.needed_for_update(5),
        files.given_back(BLOB),
    )


class Fed:
    """A letter that is opened early: it says what it was shown, and whether that was all."""

    def __init__(self, *, whole: bool) -> None:
        self.whole, self.shown, self.opened = whole, b"", 0

    def open_early(self, into: Path) -> Fed:
        return self

    def take(self, at: int, piece: bytes, /) -> None:
        self.shown += piece

    def close(self) -> bool:
        return self.whole

    def unpack_over(self, file: Path, into: Path) -> None:
        self.opened += 1


@pytest.mark.parametrize(("whole", "cut", "again"), [(True, False, 0), (False, False, 1), (True, True, 1)])
def test_what_was_opened_as_it_came_is_not_opened_again(
    files: Downloads, monkeypatch: pytest.MonkeyPatch, whole: bool, cut: bool, again: int
) -> None:
    """Unless some of it came before, or its digest was not compared; a second trainer is given it opened anew."""
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", 5)
    letter = Fed(whole=whole)
    with suppress(Refused), files.opening(letter, BLOB) as tap:
        tap(0, b"piece")
        if cut:
            raise Refused("digest", "other bytes")
    places = {files.open(letter, BLOB)}
    assert (b"piece", again) == (letter.shown, letter.opened)
    places.add(files.open(letter, BLOB))
    assert (1, again + 1) == (len(places), letter.opened)


def test_another_download_is_opened_by_itself(files: Downloads, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies opened is one letter's; and a small one is opened when all of it is there."""
    with files.opening(Fed(whole=True), BLOB) as tap:
        assert None is tap
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", 5)
    with files.opening(Fed(whole=True), BLOB):
        pass
    other = Fed(whole=True)
    files.open(other, BLOB)
    assert 1 == other.opened


def test_a_download_is_written_over_the_last_one(files: Downloads) -> None:
    """The very same file, and its length does not count as progress."""
    old, new = Blob("o" * 64, WORTH), Blob("n" * 64, WORTH)
    files.file(old).write_bytes(b"o" * WORTH)
    number = files.file(old).stat().st_ino
    files.clean_up(old)
    file = files.begin(new)
    assert (number, 0) == (file.stat().st_ino, partial_file.reached(file))


def test_an_update_is_written_over_its_download(files: Downloads, tmp_path: Path) -> None:
    """Once the trainer has read that: one file serves for both ways, and its name is free."""
    blob = Blob("o" * 64, WORTH)
    files.file(blob).write_bytes(b"o" * WORTH)
    number = files.file(blob).stat().st_ino
    files.make_way(blob)
    assert files._blanks.lay(tmp_path / "update", WORTH)
    files.clean_up(blob)
    assert number == (tmp_path / "update").stat().st_ino
    assert [] == list((tmp_path / "downloads").iterdir())


def test_what_is_kept_for_speed_is_given_back(files: Downloads, tmp_path: Path) -> None:
    """Once: the second time there is nothing, and a caller that needs room has to wait."""
    files.place_for_update(UPDATE).write_bytes(b"1")
    assert (True, False) == (files.forget_opened(), files.forget_opened())
    assert [] == list((tmp_path / "downloads").iterdir())


async def test_a_vast_download_gives_its_place_to_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the trainer has read, and the update of the task before, are gone when the next update is closed."""
    monkeypatch.setattr("pfl_client.trainer_process.large_parcels.MESSAGE_LIMIT", 0)
    monkeypatch.setattr(handover, "SHARED_LIMIT", 0)
    monkeypatch.setattr(downloads, "REUSED_LIMIT", 0)
    held: list[set[str]] = []
    store = Outbox.store

    def look(self: Outbox, key: str, header: Header, update: Parcel) -> Upload:
        runs = tmp_path / "state" / "runs" / "run-1"
        held.append({path.name for room in ("downloads", "outbox") for path in (runs / room).iterdir()})
        return store(self, key, header, update)

    monkeypatch.setattr(Outbox, "store", look)
    line = Line([assign(), assign(number=2, since=1), FINISHED])
    assert FINISHED == await live(line, Trainer(), tmp_path / "state")
    assert [set(), set()] == held
    assert 2 == len(line.hear("submit"))


async def test_a_download_whose_note_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first byte: the task is declined, the site goes on."""
    lay, troubles = partial_file.lay, [OSError(errno.ENOSPC, "full")]

    def fail_first(*words: object) -> None:
        if troubles:
            raise troubles.pop()
        lay(*words)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(partial_file, "lay", fail_first)
    line = Line([assign(), assign(number=2), FINISHED])
    assert FINISHED == await live(line, Trainer(), tmp_path / "state")
    assert ["disk_full"] == [reason for _, reason, _ in line.hear("decline")]  # type: ignore[misc]  # three words
    assert [("000002-1-train", b"update 2")] == line.hear("submit")
