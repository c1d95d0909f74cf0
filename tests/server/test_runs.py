"""The runs of a state folder: one coordinator, one unfinished run, and clear words for everything else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common.errors import StateError
from pfl_deploy.loopback import OpenEnvelopes
from pfl_server.runs import Runs
from pfl_server.settings import ServerSettings
from tests.server.federation import DESCRIPTION

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
    begun = runs.begin(settings(tmp_path), SITES)
    begun.journal.close()
    found = runs.unfinished(settings(tmp_path, port=1234))
    assert found is not None, "where it listens does not make another run"
    assert (begun.spec, ("a", "b"), begun.init) == (found.spec, found.spec.roster, found.init)
    found.journal.close()


def test_other_settings_in_mid_run(tmp_path: Path, runs: Runs) -> None:
    """The error names what changed and the way out."""
    runs.begin(settings(tmp_path), SITES).journal.close()
    with pytest.raises(StateError, match=r"\(rounds, seed\)") as error:
        runs.unfinished(settings(tmp_path, rounds=9, seed=1))
    assert "--new-run" in error.value.advice


def test_a_new_run_leaves_the_old_one(tmp_path: Path, runs: Runs) -> None:
    """Asked for, another run begins beside the unfinished one."""
    first = runs.begin(settings(tmp_path), SITES)
    assert None is runs.unfinished(settings(tmp_path, new_run=True, rounds=9))
    second = runs.begin(settings(tmp_path, rounds=9), SITES)
    assert first.spec.id != second.spec.id
    first.journal.close()
    second.journal.close()
    found = runs.unfinished(settings(tmp_path, rounds=9))
    assert second.spec.id == found.spec.id
    found.journal.close()


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_after_the_end(tmp_path: Path, runs: Runs, status: str) -> None:
    """The same command serves the run that is over; other settings begin another."""
    begun = runs.begin(settings(tmp_path), SITES)
    begun.journal.end(status)
    begun.journal.close()
    found = runs.unfinished(settings(tmp_path))
    assert begun.spec.id == found.spec.id
    found.journal.close()
    assert None is runs.unfinished(settings(tmp_path, seed=8))


def test_a_second_coordinator_is_kept_out(tmp_path: Path, runs: Runs) -> None:
    """Another process is told that the folder is in use; when the first lets go, it is not."""
    code = (
        "import sys; from pathlib import Path; from pfl_server.runs import Runs\n"
        "from pfl_deploy.loopback import OpenEnvelopes\n"
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
    pinned = runs.begin(settings(tmp_path), SITES)
    pinned.journal.close()
    other = Runs(tmp_path / "other", OpenEnvelopes())
    adopted = other.adopt(pinned.spec, SITES, settings(tmp_path))
    assert (pinned.spec.hash, pinned.init) == (adopted.spec.hash, adopted.init)
    adopted.journal.close()
    other.close()
