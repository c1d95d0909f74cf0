"""A run begins at one instant: killed before it nothing was begun, killed after it the same command goes on with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pfl_common.errors import StateError
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.decisions.sampling import Draw
from pfl_server.run import specification as opening
from pfl_server.run.specification import begin, freeze
from pfl_server.settings import ServerSettings
from pfl_server.store.run_store import Books
from pfl_server.store.state_folder import Runs
from tests.server.support.federation import DESCRIPTION

SITES = {"b": DESCRIPTION, "a": DESCRIPTION}
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree", "sqlite3.connect"}
"""What Python announces before it changes anything on disk, besides opening a file to write."""


class Killed(BaseException):
    """The process is gone: nobody catches this."""


class Fuse:
    """Burns with every change on disk; when it has burnt down, nothing is changed any more."""

    def __init__(self) -> None:
        self.left, self.armed = 0, False
        sys.addaudithook(self._hear)

    @contextmanager
    def lit(self, steps: int) -> Iterator[None]:
        """A life of so many changes."""
        self.left, self.armed = steps, True
        try:
            yield
        finally:
            self.armed = False

    def burn(self) -> None:
        """One change nearer to the end."""
        if self.armed:
            if self.left == 0:
                raise Killed
            self.left -= 1

    def _hear(self, event: str, words: tuple[Any, ...]) -> None:
        writes = event == "open" and bool(words[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if self.armed and (writes or event in CHANGES):
            self.burn()


FUSE = Fuse()
"""One for all tests: what listens to Python's announcements can never be taken away again."""


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    """Waiting for the disk is a step too. Only for the first of many runs the shapes are found out."""
    monkeypatch.setattr(os, "fsync", lambda handle: FUSE.burn())
    frozen: list[RunSpec] = []

    def freeze_once(*what: Any, run: str, **more: Any) -> RunSpec:
        frozen.extend([] if frozen else [freeze(*what, run=run, **more)])
        return replace(frozen[0], id=run)

    monkeypatch.setattr(opening, "freeze", freeze_once)
    return FUSE


def settings(state: Path, **changed: object) -> ServerSettings:
    given = {"method": "fedavg", "backbone": "tiny", "rounds": 3, "state": state} | changed
    return ServerSettings(**given)


def live(chosen: ServerSettings, fuse: Fuse, steps: int = 10**6) -> str:
    """One life of a coordinator up to its first round; gives its run, or nothing if it was killed before."""
    held: list[Runs] = []
    try:
        with fuse.lit(steps):
            held.append(Runs(chosen.state, OpenEnvelopes()))
            books = held[0].unfinished(chosen) or begin(held[0], chosen, SITES)
        check(books)
        books.journal.close()
        return books.spec.id
    except Killed:
        return ""
    finally:
        # The system lets go of the lock of a process that is gone.
        for each in held:
            each.close()


def check(books: Books) -> None:
    """A run that can be played: frozen, with its sites, not one round yet."""
    assert (books.spec.to_json(), ["a", "b"]) == (books.journal.spec(), list(books.journal.sites()))
    assert ("running", []) == (books.journal.status()[0], books.journal.rounds())


def folders(state: Path) -> list[str]:
    """The folders of runs, half ones too."""
    return sorted(path.name for path in (state / "runs").iterdir())


@pytest.fixture
def old(tmp_path: Path, fuse: Fuse) -> tuple[Path, str]:
    """A state folder with an unfinished run, to be copied."""
    state = tmp_path / "old"
    return state, live(settings(state), fuse)


def test_killed_at_every_step_of_a_new_run(tmp_path: Path, old: tuple[Path, str], fuse: Fuse) -> None:
    """However far `--new-run` came, said again it ends with one run more and the old one as it was."""
    whole, first = old
    before = (whole / "runs" / first / "journal.sqlite").read_bytes()
    steps, ended = 0, False
    while not ended:
        state = tmp_path / f"life-{steps}"
        shutil.copytree(whole, state)
        chosen = settings(state, new_run=True)
        ended = bool(live(chosen, fuse, steps))
        second = live(chosen, fuse)
        assert [first, second] == folders(state), f"killed after {steps} steps"
        assert second == live(chosen, fuse), "the same command once more goes on with its run"
        assert second == live(settings(state), fuse), "and so does the one without --new-run"
        assert before == (state / "runs" / first / "journal.sqlite").read_bytes()
        steps += 1
    assert 12 < steps, "the beginning has become too short to tell anything"


def test_killed_at_every_step_of_the_first_run(tmp_path: Path, fuse: Fuse) -> None:
    """With nothing there yet it is the same: in the end one run and no half ones."""
    steps, ended = 0, False
    while not ended:
        state = tmp_path / f"life-{steps}"
        ended = bool(live(settings(state), fuse, steps))
        assert [live(settings(state), fuse)] == folders(state), f"killed after {steps} steps"
        steps += 1
    assert 12 < steps


def test_killed_again_and_again(tmp_path: Path, old: tuple[Path, str], fuse: Fuse) -> None:
    """Lives each a step longer, in one folder: what one leaves behind is in no other's way."""
    state, first = old
    chosen = settings(state, new_run=True)
    steps = 0
    while not (second := live(chosen, fuse, steps)):
        steps += 1
    assert [first, second] == folders(state)
    assert steps > 12


def test_the_old_run_goes_on_until_the_new_one_is_begun(
    tmp_path: Path, old: tuple[Path, str], fuse: Fuse
) -> None:
    """Killed on the way, an operator who thinks better of it still has the run there was."""
    whole, first = old
    found = []
    for steps in range(30):
        state = tmp_path / f"life-{steps}"
        shutil.copytree(whole, state)
        live(settings(state, new_run=True, seed=9), fuse, steps)
        try:
            found.append(live(settings(state), fuse))
        except StateError as error:
            assert "seed was 9, now 0" in error.seen
            found.append("new")
    begun = found.index("new")
    assert ([first] * begun, ["new"] * (30 - begun)) == (found[:begun], found[begun:])


def test_a_new_run_said_twice(tmp_path: Path, fuse: Fuse, capsys: pytest.CaptureFixture[str]) -> None:
    """After a kill in any round it is the same command, which goes on. With another seed, and after its run is over, it
    is another; no unfinished run is left behind without a word.
    """
    chosen, other = (settings(tmp_path, new_run=True, seed=seed) for seed in (0, 9))
    first = live(chosen, fuse)
    play_a_round(tmp_path, chosen)
    assert first == play_a_round(tmp_path, chosen)
    assert "to_begin_another=" in capsys.readouterr().out
    second = live(other, fuse)
    assert re.search(rf"left behind .*run={first}", capsys.readouterr().out)
    play_a_round(tmp_path, other, status="stopped")
    third = live(other, fuse)
    assert "left behind" not in capsys.readouterr().out
    assert 3 == len({first, second, third})
    assert sorted([first, second, third]) == folders(tmp_path)


def play_a_round(state: Path, chosen: ServerSettings, *, status: str = "") -> str:
    """Open the first round of the run that these settings go on with, and perhaps end it; gives the run's name."""
    here = Runs(state, OpenEnvelopes())
    books = here.unfinished(chosen)
    assert books is not None
    books.journal.open_attempt(1, ("a",), Draw(("a",), frozenset()))
    if status:
        books.journal.end(status)
    books.journal.close()
    here.close()
    return books.spec.id


def test_a_pinned_run_can_be_begun_after_a_kill(tmp_path: Path, old: tuple[Path, str], fuse: Fuse) -> None:
    """Half of it in the folder does not make the folder one that holds it already."""
    whole, first = old
    here = Runs(whole, OpenEnvelopes())
    pinned = here.unfinished(settings(whole))
    assert pinned is not None
    pinned.journal.close()
    here.close()
    other = Runs(tmp_path / "other", OpenEnvelopes())
    with pytest.raises(Killed), fuse.lit(4):
        other.adopt(pinned.spec, SITES, settings(tmp_path / "other"))
    assert [f"{first}.draft"] == folders(tmp_path / "other")
    adopted = other.adopt(pinned.spec, SITES, settings(tmp_path / "other"))
    check(adopted)
    adopted.journal.close()
    other.close()
    assert [first] == folders(tmp_path / "other")


def test_a_run_that_was_taken_away(tmp_path: Path, old: tuple[Path, str]) -> None:
    """Its name is still there but its folder is not: an error that says what to do, not a new run in silence."""
    state, first = old
    shutil.rmtree(state / "runs" / first)
    here = Runs(state, OpenEnvelopes())
    with pytest.raises(StateError, match=f"names run {first}") as error:
        here.unfinished(settings(state))
    here.close()
    assert "put it back" in error.value.advice


def test_what_was_asked_is_written_down(old: tuple[Path, str]) -> None:
    """Beside the run stand the settings it was begun with, and whether it was to be a new one."""
    state, first = old
    asked = json.loads((state / "runs" / first / "asked.json").read_text())
    assert {**settings(state).run_part(), "new_run": False} == asked
