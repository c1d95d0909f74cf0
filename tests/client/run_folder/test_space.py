"""A full disk at a site: known before it trains, said in words, and over when there is room again."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from pfl_client.connection.link import NotAdmitted, Unreachable
from pfl_client.daemon import loop as story
from pfl_client.daemon import retry
from pfl_client.run_folder.audit import entries
from pfl_client.run_folder.folder import RunFolder
from pfl_client.run_folder.space import SPARE
from pfl_client.run_folder.vault_generations import Vault
from pfl_client.trainer_process.api import Progress
from pfl_client.trainer_process.task_errors import DiskFull
from pfl_common.errors import Refused
from pfl_common.files import recycler
from pfl_common.spec.manifest import full_size
from pfl_common.spec.messages import Joined, Over
from pfl_common.spec.run import Description, Kind
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.support.scripted_site import FINISHED, SITE, Line, Trainer, assign, pin, put_together


class Usage(NamedTuple):
    """What the system says of a disk."""

    free: int


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(story, "GOODBYE_SECONDS", 0.05)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The room that is free, look after look; the last stays."""
    free = [1 << 40]

    def look(path: Path) -> Usage:
        return Usage(free.pop(0) if len(free) > 1 else free[0])

    monkeypatch.setattr(shutil, "disk_usage", look)
    return free


async def live(line: Line, trainer: Trainer, state: Path) -> Over:
    """A site's whole life."""
    return await asyncio.wait_for(put_together(line, trainer, state).run(), 20)


async def test_a_task_is_declined_before_it_is_begun(tmp_path: Path, disk: list[int]) -> None:
    """Nothing is fetched and nothing trained in vain; when there is room the next task is done."""
    line, trainer = Line([assign(), assign(number=2), FINISHED]), Trainer()
    disk[:] = [1 << 40, 3_000_000, 3_000_000, 3_000_000, 3_000_000, 1 << 40]
    assert FINISHED == await live(line, trainer, tmp_path / "state")
    ((key, reason, words),) = line.hear("decline")  # type: ignore[misc]  # three words
    assert ("000001-1-train", "disk_full") == (key, reason)
    assert "3.0 MB are free on the site's disk, what comes next needs 4.2 MB" == words
    assert [2] == [job.task.round for job in trainer.jobs]
    assert ["fetch", "fetch"] == [name for name in line.names() if name == "fetch"], (
        "the model, and one download"
    )
    assert [("000002-1-train", b"update 2")] == line.hear("submit")


async def test_the_first_model_waits_for_room(tmp_path: Path, disk: list[int]) -> None:
    """A site that joins with a full disk does not give up."""
    line = Line([assign(), FINISHED])
    disk[:] = [0, 0, 1 << 40]
    assert FINISHED == await live(line, Trainer(), tmp_path / "state")
    assert ([], 1) == (line.hear("decline"), len(line.hear("submit")))


async def test_room_that_runs_out_in_mid_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever writes: the task is declined, nothing of it is left lying, and the site goes on."""
    state = tmp_path / "state"

    async def fill(progress: Progress) -> None:
        (next(state.glob("runs/*")) / "next.safetensors.part").write_bytes(b"half")
        trainer.during = None
        raise OSError(errno.ENOSPC, "full")

    line, trainer = Line([assign(), assign(number=2), FINISHED]), Trainer(during=fill)
    assert FINISHED == await live(line, trainer, state)
    assert [
        ("000001-1-train", "disk_full", "the site's disk ran full in the middle of its work")
    ] == line.hear("decline")
    assert [("000002-1-train", b"update 2")] == line.hear("submit")
    assert [] == list(state.glob("runs/*/*.part")) + list(state.glob("runs/*/downloads/*"))


async def test_the_last_task_is_asked_for_again(tmp_path: Path, disk: list[int]) -> None:
    """The serving model is what the run was for: a full disk only puts it off."""
    line, state = Line([assign(Kind.FINISH, 3), assign(Kind.FINISH, 3), FINISHED]), tmp_path / "state"
    disk[:] = [1 << 40, 0, 0, 0, 1 << 40]
    assert FINISHED == await live(line, Trainer(), state)
    assert ["model"] == [file.read_text() for file in state.glob("runs/*/serving/serving.safetensors")]


async def test_what_left_is_listed_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt is here and the list cannot be written: the site waits, and lists it once and whole."""
    troubles, audit = [DiskFull("full"), DiskFull("full")], RunFolder.audit

    def fail_first(folder: RunFolder, *words: object) -> None:
        if troubles:
            raise troubles.pop()
        audit(folder, *words)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(RunFolder, "audit", fail_first)
    state = tmp_path / "state"
    assert FINISHED == await live(Line([assign(), FINISHED]), Trainer(), state)
    assert ["update", "receipt"] == [entry["kind"] for entry in entries(state)]


@pytest.mark.parametrize(
    "lacking",
    [
        lambda: Refused("no_room", "the coordinator's disk is full"),
        lambda: NotAdmitted("the coordinator's disk is full", "no_room"),
        lambda: _caused_by(Refused("no_room", "the coordinator's disk is full")),
    ],
    ids=["refused", "not admitted", "after a transfer"],
)
async def test_a_coordinator_without_room_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lacking: Callable[[], Exception]
) -> None:
    """At every call, and the log says who has to make room."""
    calls = ("join", "report", "submit")
    line = Line([lacking(), assign(), FINISHED], troubles={name: [lacking(), lacking()] for name in calls})
    assert FINISHED == await live(line, Trainer(), tmp_path / "state")
    assert [("000001-1-train", b"update 1")] * 3 == line.hear("submit")
    said = "".join(capsys.readouterr())
    assert "the coordinator has no room" in said
    assert "does not answer" not in said


def _caused_by(refused: Refused) -> Unreachable:
    trouble = Unreachable("the transfer stands at 0 bytes")
    trouble.__cause__ = refused
    return trouble


async def test_old_files_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk without room for one folder more: what is done is removed, and no task fails for it."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    make = os.mkdir

    def refuse(path: Path, *words: int) -> None:
        if Path(path).name == "blanks":
            raise OSError(errno.ENOSPC, "full")
        make(path, *words)

    monkeypatch.setattr(os, "mkdir", refuse)
    line, state = Line([assign(), assign(number=2, since=1), FINISHED]), tmp_path / "state"
    assert FINISHED == await live(line, Trainer(), state)
    assert ([], 2) == (line.hear("decline"), len(line.hear("submit")))
    assert [] == list(state.glob("runs/*/downloads/*"))


async def test_a_task_that_is_given_up_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its download nor its update lies on among the files to be written over: their room is needed."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    commit, troubles, state = Vault.commit, [OSError(errno.ENOSPC, "full")], tmp_path / "state"

    def fail_first(vault: Vault, *words: object, **named: object) -> None:
        if troubles:
            raise troubles.pop()
        commit(vault, *words, **named)  # type: ignore[arg-type]  # as they came

    kept: list[list[Path]] = []

    class Looking(Line):
        async def decline(self, key: str, reason: str, words: str) -> None:
            kept.append(list(state.glob("runs/*/blanks/*")))
            await super().decline(key, reason, words)

    monkeypatch.setattr(Vault, "commit", fail_first)
    line = Looking([assign(), assign(number=2), FINISHED])
    assert FINISHED == await live(line, Trainer(), state)
    assert [[]] == kept
    assert [("000002-1-train", b"update 2")] == line.hear("submit")


async def test_what_is_kept_for_speed_goes_before_anybody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of what left has no room beside them: they go, and nobody is told of a full disk."""
    monkeypatch.setattr(recycler, "WORTH", 1)
    audit, state, seen = RunFolder.audit, tmp_path / "state", []

    def fail_beside_blanks(folder: RunFolder, *words: object) -> None:
        if not seen:
            (state / "old").write_bytes(b"of an update that nobody needs")
            assert folder.downloads._blanks.give(state / "old")
        seen.append(len(list(state.glob("runs/*/blanks/*"))))
        if seen[-1]:
            raise DiskFull("full")
        audit(folder, *words)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(RunFolder, "audit", fail_beside_blanks)
    assert FINISHED == await live(Line([assign(), FINISHED]), Trainer(), state)
    assert [1, 0] == seen
    assert "waiting for room" not in "".join(capsys.readouterr())


async def test_what_a_killed_site_kept_goes_when_it_begins(tmp_path: Path) -> None:
    """Of every run: the next one may have another name, and nobody would look there again."""
    old = tmp_path / "state" / "runs" / "run-0"
    (old / "blanks").mkdir(parents=True)
    (old / "blanks" / "1").write_bytes(b"old")
    (old / "history.jsonl").write_text("{}")
    gone: list[bool] = []

    class Looking(Line):
        async def join(self, description: Description) -> Joined | None:
            gone.append(not (old / "blanks").exists())
            return await super().join(description)

    assert FINISHED == await live(Looking([FINISHED]), Trainer(), tmp_path / "state")
    assert ([True], True) == (gone, (old / "history.jsonl").exists())


def test_a_run_that_keeps_the_best_needs_room_for_it(tmp_path: Path, disk: list[int]) -> None:
    """Whether a round is the best is not known before it is measured: each task wants room for one model more."""
    for task in (assign(), assign(Kind.EVALUATE), assign(Kind.FINISH, 3)):
        free = {}
        for keep in ("last", "best"):
            spec = replace(pin(), keep=keep)
            folder = RunFolder(tmp_path / keep, spec, SITE, envelopes=OpenEnvelopes())
            for room in range(SPARE, SPARE + 100):
                disk[:] = [room]
                if folder.space.suffices(task):
                    free[keep] = room
                    break
            folder.close()
        assert full_size(pin().init_manifest) == free["best"] - free["last"]
