"""The run to begin from: found, checked, and copied so that its folder is not read again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pfl_common.errors import SettingError, StateError
from pfl_common.spec.run import Description
from pfl_deploy.simulation.loopback import OpenEnvelopes
from pfl_server.run.specification import begin
from pfl_server.settings import ServerSettings
from pfl_server.store import begin_from, beginning_files
from pfl_server.store.begin_from import find_source
from pfl_server.store.run_store import Books
from pfl_server.store.state_folder import Runs
from tests.server.sites.test_visits import commit
from tests.server.support.federation import DESCRIPTION

SITES = {"a": DESCRIPTION, "b": DESCRIPTION}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    opened = Runs(tmp_path, OpenEnvelopes())
    yield opened
    opened.close()


def settings(state: Path, **changed: object) -> ServerSettings:
    return ServerSettings(**({"method": "fedper", "backbone": "tiny", "rounds": 3, "state": state} | changed))


def play(runs: Runs, asked: ServerSettings, *, ended: str = "finished") -> Books:
    """A run of two committed rounds that is over."""
    books = begin(runs, asked, SITES)
    for number in (1, 2):
        commit(books, number)
    books.journal.end(ended)
    books.journal.close()
    return books


def test_it_begins_with_the_last_state_and_the_first_values(tmp_path: Path, runs: Runs) -> None:
    """The shared state is the last one, every site's first model the other run's, whatever the seed; no folder but the
    run's own is read when it is opened again.
    """
    before = play(runs, settings(tmp_path))
    asked = settings(tmp_path, begin_from=f"./runs/{before.spec.id}", seed=9)
    now = begin(runs, asked, SITES)
    assert (before.spec.id, before.spec.hash, 2) == (
        now.spec.begins_from.run,
        now.spec.begins_from.spec,
        now.spec.begins_from.round,
    )
    assert all(torch.equal(now.first[name], value + 2) for name, value in before.first.items())
    assert before.init.blob == now.init.blob
    assert {1: 1, 2: 1} == now.before
    now.journal.close()
    shutil.rmtree(tmp_path / "runs" / before.spec.id)
    again = runs.unfinished(asked)
    assert all(torch.equal(again.first[name], value) for name, value in now.first.items())
    again.journal.close()


def test_a_state_that_is_damaged_is_not_begun_with(tmp_path: Path, runs: Runs) -> None:
    """Neither the other run's, nor what a run keeps of it."""
    before = play(runs, settings(tmp_path))
    asked = settings(tmp_path, begin_from=before.spec.id)
    now = begin(runs, asked, SITES)
    now.journal.close()
    kept = tmp_path / "runs" / now.spec.id / beginning_files.FOLDER / "round-000000.safetensors"
    spoil(kept)
    with pytest.raises(StateError, match=now.spec.id):
        runs.unfinished(asked)
    spoil(tmp_path / "runs" / before.spec.id / "checkpoints" / "round-000002.safetensors")
    with pytest.raises(StateError, match=before.spec.id):
        begin(runs, replace(asked, seed=4), SITES)
    assert [] == list((tmp_path / "runs").glob("*/begun/*.tmp"))


def spoil(file: Path) -> None:
    """Change its last byte."""
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    ("ended", "words"), [("running", "pfl stop"), ("failed", "that run is failed"), ("stopped", "")]
)
def test_only_a_run_that_is_over(tmp_path: Path, runs: Runs, ended: str, words: str) -> None:
    """One that goes on, or may be tried again, has no last state; one that was stopped has."""
    before = play(runs, settings(tmp_path), ended=ended)
    if not words:
        assert 2 == find_source(tmp_path / "runs", before.spec.id).round
        return
    with pytest.raises(SettingError, match=words):
        find_source(tmp_path / "runs", before.spec.id)


def test_the_nearest_name_is_told(tmp_path: Path, runs: Runs) -> None:
    """Among those that are over."""
    before = play(runs, settings(tmp_path))
    with pytest.raises(SettingError, match=before.spec.id):
        find_source(tmp_path / "runs", before.spec.id[:-1])


def test_who_is_new_and_whose_data_are_others_is_said(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said, not refused: next month's data are meant to be others."""
    described = {site: replace(DESCRIPTION, data=f"{place:064x}") for place, site in enumerate("ab")}
    books = begin(runs, settings(tmp_path), described)
    commit(books, 1)
    books.journal.end("finished")
    books.journal.close()
    now: dict[str, Description] = {"a": described["b"], "c": described["b"]}
    seen: list[dict[str, object]] = []

    class Log:
        def info(self, words: str, **facts: object) -> None:
            seen.append(facts)

    monkeypatch.setattr(begin_from, "log", Log())
    begin(runs, settings(tmp_path, begin_from=books.spec.id), now).journal.close()
    (facts,) = seen
    assert (["a"], ["c"], ["b"]) == (
        facts["sites_with_other_data"],
        facts["new_sites"],
        facts["missing_sites"],
    )
    assert json.dumps(facts)


def test_weights_and_what_stands_still_go_on(tmp_path: Path, runs: Runs) -> None:
    """The next run begins with the models, not with the file again; what stood still goes on doing so, and no other."""
    file = tmp_path / "w.safetensors"
    save_file({"encoder.1.weight": torch.full((3, 2), 5.0), "encoder.1.bias": torch.ones(3)}, file)
    words = {"method": "fedavg", "weights": str(file), "freeze": ("encoder.1.bias",)}
    before = play(runs, settings(tmp_path, **words))
    file.unlink()
    asked = settings(tmp_path, method="fedavg", begin_from=before.spec.id)
    now = begin(runs, asked, SITES)
    now.journal.close()
    assert (None, ("encoder.1.bias",)) == (now.spec.weights, now.spec.frozen)
    assert before.init.blob == now.init.blob
    assert "encoder.1.bias" not in now.first
    assert torch.equal(now.first["encoder.1.weight"], torch.full((3, 2), 7.0))
    other = settings(tmp_path, method="fedavg", begin_from=before.spec.id, freeze=("head",))
    with pytest.raises(SettingError, match="--freeze was"):
        find_source(tmp_path / "runs", before.spec.id).check_settings(other)
