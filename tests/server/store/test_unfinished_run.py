"""An unfinished run goes on with the settings it was begun with, is refused with others, and left behind when asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pfl_common.errors import StateError
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.run.specification import begin
from pfl_server.settings import ServerSettings
from pfl_server.store.state_folder import Runs
from pfl_server.store.unfinished_run import MOST_SAID, _say
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


def test_other_settings_in_mid_run(tmp_path: Path, runs: Runs) -> None:
    """The error names what changed and the way out."""
    begin(runs, settings(tmp_path), SITES).journal.close()
    with pytest.raises(StateError, match=r"rounds was 3, now 9; seed was \d+, now 1\n") as error:
        runs.unfinished(settings(tmp_path, rounds=9, seed=1))
    assert "--new-run" in error.value.advice


def test_another_method_in_mid_run(tmp_path: Path, runs: Runs) -> None:
    """Words are shown as they were typed, and a method's own settings one by one."""
    begin(runs, settings(tmp_path, method="dualfed", set={"lambda": 0.5}), SITES).journal.close()
    said = "method was dualfed, now fedavg; set lambda was 0.5, now not given\n"
    with pytest.raises(StateError, match=said):
        runs.unfinished(settings(tmp_path))


@pytest.mark.parametrize("share", [ServerSettings.validation, 0.0])
def test_a_run_from_before_there_was_a_validation_share(tmp_path: Path, runs: Runs, share: float) -> None:
    """It held nothing back: nothing said asks for that run, and none does; another share is told."""
    begun = begin(runs, settings(tmp_path, validation=0.0), SITES)
    begun.journal.close()
    note = tmp_path / "runs" / begun.spec.id / "asked.json"
    asked = json.loads(note.read_text())
    del asked["validation"]
    note.write_text(json.dumps(asked))
    found = runs.unfinished(settings(tmp_path, validation=share))
    assert (begun.spec.id, 0.0) == (found.spec.id, found.spec.validation)
    found.journal.close()
    with pytest.raises(StateError, match="validation was"):
        runs.unfinished(settings(tmp_path, validation=0.3))


def test_a_setting_that_an_older_release_did_not_have(tmp_path: Path, runs: Runs) -> None:
    """A run it began goes on, unless the setting is asked for now; a default that has changed since is told."""
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.close()
    note = tmp_path / "runs" / begun.spec.id / "asked.json"
    asked = json.loads(note.read_text())
    del asked["largest_norm"]
    note.write_text(json.dumps(asked))
    found = runs.unfinished(settings(tmp_path))
    assert begun.spec.id == found.spec.id
    found.journal.close()
    with pytest.raises(StateError, match=r"largest_norm was 1000000000\.0, now 5\.0"):
        runs.unfinished(settings(tmp_path, largest_norm=5.0))
    note.write_text(json.dumps(asked | {"quorum": 0.5}))
    with pytest.raises(StateError, match=r"quorum was 0\.5, now majority"):
        runs.unfinished(settings(tmp_path))


def test_a_run_of_the_release_before(tmp_path: Path, runs: Runs) -> None:
    """The same command after an upgrade goes on with it, and serves it when it is over: a quorum that nobody named was
    a half then. What is named now is another wish.
    """
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.close()
    note = tmp_path / "runs" / begun.spec.id / "asked.json"
    asked = json.loads(note.read_text())
    for name in ("classes", "pixel_range", "standardise"):
        del asked[name]
    note.write_text(json.dumps(asked | {"quorum": 0.5}))
    for now in ({}, {"quorum": 0.5}):
        found = runs.unfinished(settings(tmp_path, **now))
        assert begun.spec.id == found.spec.id
        found.journal.close()
    with pytest.raises(StateError, match=r"quorum was 0\.5, now 1\.0"):
        runs.unfinished(settings(tmp_path, quorum=1.0))
    note.write_text(json.dumps(asked | {"quorum": 0.7}))
    with pytest.raises(StateError, match=r"quorum was 0\.7, now majority"):
        runs.unfinished(settings(tmp_path))
    note.write_text(json.dumps(asked | {"quorum": 0.5}))
    found = runs.unfinished(settings(tmp_path))
    found.journal.end("finished")
    found.journal.close()
    again = runs.unfinished(settings(tmp_path))
    assert begun.spec.id == again.spec.id
    again.journal.close()


def test_a_new_run_leaves_the_old_one(tmp_path: Path, runs: Runs) -> None:
    """Asked for, another run begins beside the unfinished one."""
    first = begin(runs, settings(tmp_path), SITES)
    assert None is runs.unfinished(settings(tmp_path, new_run=True, rounds=9))
    second = begin(runs, settings(tmp_path, rounds=9), SITES)
    assert first.spec.id != second.spec.id
    first.journal.close()
    second.journal.close()
    found = runs.unfinished(settings(tmp_path, rounds=9))
    assert second.spec.id == found.spec.id
    found.journal.close()


@pytest.mark.parametrize("status", ["finished", "stopped"])
def test_after_the_end(tmp_path: Path, runs: Runs, status: str) -> None:
    """The same command serves the run that is over; other settings begin another."""
    begun = begin(runs, settings(tmp_path), SITES)
    begun.journal.end(status)
    begun.journal.close()
    found = runs.unfinished(settings(tmp_path))
    assert begun.spec.id == found.spec.id
    found.journal.close()
    assert None is runs.unfinished(settings(tmp_path, seed=8))


def test_a_long_list_is_cut() -> None:
    """The words of texts are thousands: how many there are is said, and the first of them."""
    assert str(MOST_SAID + 5) in _say(list(range(MOST_SAID + 5)))
    assert str(MOST_SAID) not in _say(list(range(MOST_SAID + 5)))[: -len(", ... 25 in all]")]
    assert "[1, 2]" == _say([1, 2])
