"""The runs of a state folder: one coordinator, one unfinished run, and clear words for everything else."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pfl_common.errors import StateError
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.run.specification import begin
from pfl_server.settings import ServerSettings
from pfl_server.store.state_folder import Runs, make_state_folder
from tests.server.support.federation import DESCRIPTION

SITES = {"b": DESCRIPTION, "a": DESCRIPTION}


def settings(state: Path, **changed: object) -> ServerSettings:
    given = {"method": "fedavg", "backbone": "tiny", "rounds": 3, "state": state} | changed
    return ServerSettings(**given)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path, OpenEnvelopes())
    yield runs
    runs.close()


def test_a_run_is_frozen_and_found_again(tmp_path: Path, runs: Runs) -> None:
    """The same command finds the run it began, with the same specification."""
    assert None is runs.unfinished(settings(tmp_path))
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.close()
    found = runs.unfinished(settings(tmp_path, port=1234))
    assert found is not None, "where it listens does not make another run"
    assert (begun.spec, ("a", "b"), begun.init) == (found.spec, found.spec.roster, found.init)
    found.journal.close()


JUNK = b"no journal at all " * 500


@pytest.mark.parametrize("damage", ["junk", "a page in its middle", "empty", "missing"])
def test_a_damaged_journal(tmp_path: Path, runs: Runs, damage: str) -> None:
    """The error names the file and both ways out; --new-run, which is one of them, leaves it as it is."""
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.close()
    file = tmp_path / "runs" / begun.spec.id / "journal.sqlite"
    whole = file.read_bytes()
    half = len(whole) // 2 // 4096 * 4096
    found = {
        "junk": JUNK,
        "empty": b"",
        "a page in its middle": whole[:half] + JUNK[:4096] + whole[half + 4096 :],
    }
    file.unlink()
    if damage in found:
        file.write_bytes(found[damage])
    with pytest.raises(StateError, match=r"journal\.sqlite is damaged: \w") as error:
        runs.unfinished(settings(tmp_path))
    assert str(file) in error.value.seen
    assert "backup" in error.value.advice
    assert None is runs.unfinished(settings(tmp_path, new_run=True))
    if damage in found:
        assert found[damage] == file.read_bytes()


def test_a_run_of_a_newer_release(tmp_path: Path, runs: Runs) -> None:
    """It is not called damaged; the error names both ways out, and --new-run leaves it as it is."""
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.close()
    file = tmp_path / "runs" / begun.spec.id / "journal.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.execute("pragma user_version = 99")
    before = file.read_bytes()
    with pytest.raises(StateError, match=r"journal\.sqlite is a journal of version 99") as error:
        runs.unfinished(settings(tmp_path))
    assert "release that wrote it" in error.value.advice
    assert "--new-run" in error.value.advice
    assert None is runs.unfinished(settings(tmp_path, new_run=True))
    assert before == file.read_bytes()


def test_a_second_coordinator_is_kept_out(tmp_path: Path, runs: Runs) -> None:
    """Another process is told that the folder is in use; when the first lets go, it is not."""
    code = (
        "import sys; from pathlib import Path; from pfl_server.store.state_folder import Runs\n"
        "from pfl_deploy.simulation.loopback import OpenEnvelopes\n"
        "from pfl_common.errors import StateError\n"
        "try: Runs(Path(sys.argv[1]), OpenEnvelopes())\n"
        "except StateError as error: sys.exit(error.seen)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (1, f"another coordinator is using the state folder {tmp_path}") == (
        refused.returncode,
        refused.stderr.strip(),
    )


def test_a_folder_that_was_let_go(tmp_path: Path) -> None:
    """However the first ended, the lock went with it."""
    Runs(tmp_path, OpenEnvelopes()).close()
    Runs(tmp_path, OpenEnvelopes()).close()


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in its place is an error in words."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="cannot be made"):
        Runs(tmp_path / "state", OpenEnvelopes())


def test_the_very_run_of_a_specification(tmp_path: Path, runs: Runs) -> None:
    """A pinned specification is taken over as it is, id and all."""
    pinned = begin(runs, settings(tmp_path), SITES)
    pinned.journal.close()
    other = Runs(tmp_path / "other", OpenEnvelopes())
    adopted = other.adopt(pinned.spec, SITES, settings(tmp_path))
    assert (pinned.spec.hash, pinned.init) == (adopted.spec.hash, adopted.init)
    adopted.journal.close()
    other.close()


HOLD = """
import sys
from pathlib import Path
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.store.state_folder import Runs, make_state_folder
runs = Runs(Path(sys.argv[1]), OpenEnvelopes())
sys.stdout.write("held")
sys.stdout.flush()
sys.stdin.read()
"""
"""Another coordinator: takes the folder, says so, and holds it until its input ends."""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A coordinator of its own that has the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert b"held" == process.stdout.read(4)
        yield process
        process.kill()


def test_another_path_to_the_folder_is_the_same_folder(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    """A link to the state folder, or to one above it, does not get round the one who has it."""
    (tmp_path / "link").symlink_to(tmp_path / "state")
    (tmp_path / "above").symlink_to(tmp_path)
    for path in (tmp_path / "link", tmp_path / "above" / "state", tmp_path / "x" / ".." / "state"):
        with pytest.raises(StateError, match="another coordinator is using"):
            Runs(path, OpenEnvelopes())
    holder.kill()
    holder.wait(20)
    Runs(tmp_path / "link", OpenEnvelopes()).close()


def test_a_stopped_coordinator_still_has_its_folder(tmp_path: Path, holder: subprocess.Popen[bytes]) -> None:
    """One that was stopped may wake up and write at any moment: only its end lets another in."""
    holder.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(holder.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    with pytest.raises(StateError, match="another coordinator is using"):
        Runs(tmp_path / "state", OpenEnvelopes())
    holder.kill()
    holder.wait(20)
    Runs(tmp_path / "state", OpenEnvelopes()).close()


@pytest.mark.parametrize("durability", ["power", "process"])
def test_what_the_state_survives_is_asked_of_the_journal(tmp_path: Path, durability: str) -> None:
    """For a run that is begun and for one that goes on; it may be another each time."""
    runs = Runs(tmp_path, OpenEnvelopes())
    begun = begin(runs, settings(tmp_path, durability=durability), SITES)
    begun.journal.close()
    again = runs.unfinished(settings(tmp_path, durability="power"))
    assert again is not None
    again.journal.close()
    runs.close()
    assert (durability, "power") == (begun.journal.durability, again.journal.durability)


def test_letting_go_of_the_folder(tmp_path: Path) -> None:
    """When another may have it, all that was asked of the journal is on disk."""
    runs = Runs(tmp_path, OpenEnvelopes())
    books = begin(runs, settings(tmp_path), SITES)
    waiting = [books.journal.scribe.ask(lambda page: page.write("update run set words = 'x'")) for _ in "123"]
    runs.close()
    assert all(answer.done() for answer in waiting)
    books.journal.close()


def test_no_two_runs_share_a_name(tmp_path: Path) -> None:
    """Of two federations, of other settings, of other sites; only the very same beginning has the same name."""
    given = {"plain": {}, "again": {}, "other seed": {"seed": 7}, "longer": {"rounds": 9}}
    names = {}
    for place, (case, words) in enumerate([*given.items(), ("other federation", {})]):
        runs = Runs(tmp_path / case, OpenEnvelopes(), federation="b" if place == len(given) else "a")
        books = begin(runs, settings(tmp_path / case, **words), SITES)
        books.journal.close()
        runs.close()
        names[case] = books.spec.id
    assert names.pop("plain") == names["again"]
    assert 4 == len(set(names.values()))


def test_a_folder_with_another_run_in_it(tmp_path: Path, runs: Runs) -> None:
    """A run's folder that was exchanged or copied over is named, instead of waiting for sites that never come."""
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.close()
    other = tmp_path / "runs" / "fedavg-009-0000"
    (tmp_path / "runs" / begun.spec.id).rename(other)
    (tmp_path / "current").write_text(other.name)
    with pytest.raises(StateError, match=f"holds run {begun.spec.id}"):
        runs.unfinished(settings(tmp_path))


@pytest.mark.parametrize("which", [".", "runs"])
def test_a_folder_that_others_may_write_to(tmp_path: Path, which: str) -> None:
    """Journal and checkpoints would be theirs: refused at start, with the command that mends it."""
    state = tmp_path / "state"
    make_state_folder(state)
    assert [0o700, 0o700] == [folder.stat().st_mode & 0o777 for folder in (state, state / "runs")]
    for mode, refused in ((0o755, False), (0o770, True), (0o702, True)):
        (state / which).chmod(mode)
        if refused:
            with pytest.raises(StateError, match="others may write there") as error:
                make_state_folder(state)
            assert "chmod go-w" in error.value.advice
        else:
            make_state_folder(state)
