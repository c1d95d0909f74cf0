"""`pfl simulate` serves a kept run again for the same settings, data and code alone, and says which it did."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pfl_common.app import code_digest
from pfl_deploy.cli import main
from pfl_deploy.simulation.simulate import find_sites, open_host
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import write_site
from tests.words import Spoken, check_clear, speak

WORDS = ("--method", "fedavg", "--backbone", "mlp", "--rounds", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user works, with two sites below `data` and a run that was trained on them."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("hospital_a", "hospital_b")):
        write_site(tmp_path / "data" / name, samples=12, size=8, seed=seed)
    check_clear(simulate(), 0)
    return tmp_path


def simulate(*words: str) -> Spoken:
    """The command, once more."""
    return speak(main, "simulate", "--data", "data", *WORDS, *words)


def told(*words: str) -> dict[str, object]:
    """Its JSON."""
    said = simulate("--json", *words)
    check_clear(said, 0)
    found: dict[str, object] = json.loads(said.out)
    return found


def runs(here: Path) -> Sequence[str]:
    """Those that are kept."""
    return sorted(path.name for path in (here / "pfl-simulation" / "coordinator" / "runs").iterdir())


def change_data(here: Path) -> None:
    """One sample of one site is another."""
    file = here / "data" / "hospital_b" / "train.npz"
    arrays = dict(np.load(file))
    arrays["x"][0, 0, 0] ^= 1
    np.savez(file, **arrays)


def change_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a file of the product were another."""
    monkeypatch.setattr(code_digest, "digest", lambda: "0" * 64)


def leave_unfinished(here: Path) -> None:
    """As a kill leaves it."""
    (file,) = (here / "pfl-simulation" / "coordinator" / "runs").glob("*/journal.sqlite")
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("update run set status = 'running'")


def test_the_same_command_serves_the_run_again(here: Path) -> None:
    """Which run it is and when it was trained is said, on the terminal and in the JSON; nothing is trained."""
    (run,) = runs(here)
    said = simulate()
    check_clear(
        said, 0, f"run {run} is served again, nothing was trained now: it was trained on 20", "--new-run"
    )
    again = told()
    assert (run, True, None) == (again["run"], again["served_again"], again["instead_of"])
    assert str(again["trained"]).endswith("UTC")
    assert 1 == len(runs(here))


def test_a_first_run_is_not_served_again(here: Path) -> None:
    """Somewhere else nothing is kept."""
    first = told("--out", "elsewhere")
    assert (False, None, None) == (first["served_again"], first["trained"], first["instead_of"])


def test_other_data_make_another_run(here: Path) -> None:
    """That the old one is not served, and because of which site, is said; its JSON names it."""
    (old,) = runs(here)
    change_data(here)
    said = simulate()
    check_clear(said, 0, f"run {old} is not served again: the data of hospital_b has changed")
    assert "is served again" not in said.text
    assert 2 == len(runs(here))
    assert told()["served_again"]


def test_other_code_makes_another_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of the code before a change says nothing of the change."""
    (old,) = runs(here)
    change_code(monkeypatch)
    found = told()
    assert {"run": old, "changed": ["the product's code has changed"]} == found["instead_of"]
    assert (False, 2) == (found["served_again"], len(runs(here)))


def test_other_sites_make_another_run(here: Path) -> None:
    """As many as before, but another one among them."""
    (here / "data" / "hospital_b").rename(here / "data" / "hospital_c")
    said = simulate()
    check_clear(said, 0, "its sites were hospital_a, hospital_b, now hospital_a, hospital_c")
    assert 2 == len(runs(here))


def test_other_settings_make_another_run(here: Path) -> None:
    """Which is said too."""
    check_clear(simulate("--seed", "7"), 0, "its settings were others. A new run begins")
    assert 2 == len(runs(here))


def test_a_new_run_when_it_is_asked_for(here: Path) -> None:
    """`--new-run` trains again although nothing has changed."""
    found = told("--new-run")
    assert (False, None, 2) == (found["served_again"], found["instead_of"], len(runs(here)))


def test_an_unfinished_run_goes_on_with_what_it_was_begun_with(here: Path) -> None:
    """The same command finishes it; it is not said to be served again."""
    leave_unfinished(here)
    found = told()
    assert (False, 1) == (found["served_again"], len(runs(here)))


def test_an_unfinished_run_of_other_data_or_code(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names the site and the code, and the way out, which works."""
    leave_unfinished(here)
    change_data(here)
    change_code(monkeypatch)
    phrases = (
        "is unfinished",
        "the data of hospital_b has changed",
        "the product's code has changed",
        "--new-run",
    )
    check_clear(simulate(), 4, *phrases)
    assert 1 == len(runs(here))
    check_clear(simulate("--new-run"), 0)
    assert 2 == len(runs(here))


def test_a_specification_that_was_played_is_served_again(here: Path) -> None:
    """Another one that is named while that run is kept is played, and not answered with it."""
    (old,) = runs(here)
    spec = here / "spec.json"
    spec.write_bytes((here / f"pfl-simulation/sites/hospital_a/runs/{old}/spec.json").read_bytes())
    words = ("simulate", "--data", "data", "--spec", "spec.json", "--out", "again", "--json")
    first, second = (json.loads(speak(main, *words).out) for _ in range(2))
    assert (False, True) == (first["served_again"], second["served_again"])
    assert first["accuracy"] == second["accuracy"]
    spec.write_text(spec.read_text().replace(old, "another-1").replace('"seed":0', '"seed":5'))
    third = json.loads(speak(main, *words).out)
    assert ("another-1", False) == (third["run"], third["served_again"])


def test_a_coordinator_that_goes_on_under_other_code_warns(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On real networks the run goes on; a run that is over is only served, and nothing is said."""
    given = {"method": "fedavg", "backbone": "mlp", "rounds": 1, "sites": 2, "quorum": 1.0}
    settings = ServerSettings(**given, state=here / "pfl-simulation" / "coordinator")
    assert 2 == len(find_sites(here / "data"))
    change_code(monkeypatch)
    heard = []
    for _ in range(2):
        host = open_host(settings)
        heard.append([event.words for event in host.record.events.newest()])
        host.runs.close()
        leave_unfinished(here)
    assert [] == heard[0]
    assert ["the run goes on with other code than it was begun with"] == [
        words.partition(":")[0] for words in heard[1]
    ]


def test_warnings_say_which_site(here: Path) -> None:
    """Many sites speak in one log."""
    (here / "data" / "hospital_b" / "test.npz").unlink()
    said = simulate()
    line = next(line for line in said.err.splitlines() if "no test samples" in line)
    assert "hospital_b" in line


def test_other_weights_of_the_same_name(here: Path) -> None:
    """A file that was written anew begins a new run; one that is gone has left in the run what it takes."""
    words = ("--weights", "w.safetensors", "--freeze", "encoder.fc1", "--out", "begun")
    write_weights(here / "w.safetensors", 1)
    assert not told(*words)["served_again"]
    write_weights(here / "w.safetensors", 2)
    left = told(*words)["instead_of"]
    assert ["the file of --weights has changed"] == left["changed"]
    (here / "w.safetensors").unlink()
    assert told(*words)["served_again"]


def write_weights(file: Path, value: float) -> None:
    """A file that fits a layer of the network."""
    save_file({"encoder.fc3.bias": torch.full((100,), value)}, file)
