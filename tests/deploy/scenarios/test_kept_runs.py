"""State folders that an earlier release left in the middle of a run: they are read, and the run goes on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pfl_client.run_folder.audit import entries
from pfl_common.app.config import settle
from pfl_common.errors import StateError
from pfl_common.identity import Authority, Keyring
from pfl_common.spec.run import RunSpec
from pfl_deploy.operator import audit
from pfl_deploy.report.sources.coordinator import read_record
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from pfl_server.store import journal_schema
from pfl_server.store.journal import Journal
from pfl_server.store.journal_check import find_damage
from pfl_server.store.journal_migration import newest

KEPT = Path(__file__).parents[1] / "support" / "kept_runs"
SITES = ("clinic_a", "clinic_b")
SETTINGS = {"method": "fedper", "rounds": 6, "sites": 2, "quorum": 1.0, "set": {"batch": "8", "lr": "0.1"}}
MADE = datetime(2026, 11, 19, 14, tzinfo=UTC)
"""When they were left."""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy, as private as it was: version control keeps no permissions."""
    copy = shutil.copytree(KEPT, tmp_path / "kept")
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


def test_a_run_that_was_broken_off_goes_on(kept: Path) -> None:
    """From the middle of round 4: what is committed stays, what was handed in counts, the personal heads go on."""
    state, sites = kept / "simulated" / "coordinator", kept / "simulated" / "sites"
    run = (state / "current").read_text()
    before = _read_rounds(state / "runs" / run)
    heads = {site: _head_of(sites / site / "runs" / run) for site in SITES}
    settings = settle(ServerSettings, {**SETTINGS, "state": state}, what="test")
    played = simulate(settings, [kept / "sites" / site for site in SITES], sites)
    assert (run, 6) == (played.spec.id, played.spec.rounds)
    after = _read_rounds(played.coordinator)
    assert {1: 1, 2: 1, 3: 1} == before == {number: after[number] for number in before}
    assert {*range(1, 7)} == {*after}
    for site in SITES:
        assert not torch.equal(heads[site], _head_of(played.sites[site]))
        assert [1, 2, 3, 4, 5, 6] == sorted({_round_of(line) for line in _updates(sites / site, run)})


@pytest.mark.parametrize("where", ["simulated", "real"])
def test_the_journal_is_brought_to_this_version(
    kept: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It was written before there were versions: it is whole and read as a copy; opened, it takes every step."""
    later = ("alter table attempt add column machine text not null default 'unknown'",)
    monkeypatch.setattr(journal_schema, "STEPS", (*journal_schema.STEPS, later))
    state = kept / where / "coordinator"
    run = state / "runs" / (state / "current").read_text()
    file = run / "journal.sqlite"
    before, rounds = file.read_bytes(), {tried.round for tried in read_record(run).attempts}
    assert ("", before, [(0,)]) == (find_damage(file), file.read_bytes(), _look(file, "pragma user_version"))
    assert rounds >= {1, 2, 3} == {*_read_rounds(run)} - {4}
    assert [(newest(),)] == _look(file, "pragma user_version")
    assert dict.fromkeys(rounds, "unknown") == dict(_look(file, "select round, machine from attempt"))
    assert ("", rounds) == (find_damage(file), {tried.round for tried in read_record(run).attempts})


def test_a_newer_journal_is_not_reported(kept: Path) -> None:
    """The words name the run's own file, not the copy that was read."""
    state = kept / "real" / "coordinator"
    run = state / "runs" / (state / "current").read_text()
    _look(run / "journal.sqlite", "pragma user_version = 99")
    with pytest.raises(StateError, match=r"99") as error:
        read_record(run)
    assert str(run / "journal.sqlite") in error.value.seen


def test_the_specification_is_read_to_the_letter(kept: Path) -> None:
    """Its hash names the run's first state: a word more or less would be another run."""
    for spec in kept.rglob("spec.json"):
        assert spec.read_text() == RunSpec.from_json(spec.read_text()).to_json()


def test_a_real_run_is_read(kept: Path) -> None:
    """The coordinator's record, the sites' vaults, the signed list of all that left, and everybody's keys."""
    state = kept / "real" / "coordinator"
    record = read_record(state / "runs" / (state / "current").read_text())
    assert (60, "running", SITES) == (record.spec.rounds, record.status, record.spec.roster)
    assert {*range(1, 5)} == {*_read_rounds(record.folder)}
    authority = Authority.open(state / "federation")
    for site in SITES:
        place = next((kept / "real" / site).glob(f"*/{site}"))
        listed = audit.read(kept / "real" / site, None, None, verify=True)
        audit.check(listed)
        assert [5] == [one.checked.receipts for one in listed if one.checked]
        keys = Keyring.open(place / "keys")
        assert (False, True) == (keys.expired(MADE), keys.expired(MADE + timedelta(days=31)))
        assert site == authority.card_of(site, now=MADE).name
        assert 2 == len(list((place / "runs" / record.spec.id / "generations").glob("*.safetensors")))


def _read_rounds(run: Path) -> dict[int, int]:
    """Each committed round with its attempt."""
    journal = Journal(run / "journal.sqlite")
    try:
        return dict(journal.committed())
    finally:
        journal.close()


def _look(file: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(statement).fetchall()


def _head_of(run: Path) -> torch.Tensor:
    """The newest personal head of a site."""
    newest = max((run / "generations").glob("*.safetensors"))
    return load_file(newest)["head.weight"]


def _updates(site: Path, run: str) -> list[dict[str, object]]:
    return [line for line in entries(site, run) if line["kind"] == "update"]


def _round_of(line: dict[str, object]) -> int:
    return int(str(line["task"]).partition("-")[0])
