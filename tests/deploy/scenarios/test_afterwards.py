"""After a run, on real processes: a site that comes later fits its own part, and next month's run begins from this one.

Both end in the simulator's bytes; the second run's coordinator is killed after a round and started again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pfl_client.run_folder.audit import UPDATE
from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import Machine, write_site

A, LATE = "hospital_a", "hospital_z"
KINDS = ("fedper", "fedcac", "fedproto")
"""Personal modules beside a mean; single models and masks; no model."""
NEXT_ROUNDS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The late site alone, of one method; with `--long` the next run too, of one method of each kind."""
    every = metafunc.config.option.long
    metafunc.parametrize(("method", "whole"), [(m, True) for m in KINDS] if every else [(KINDS[0], False)])


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """One user's machine, on which nothing is left running."""
    made = Machine(tmp_path / "machine")
    yield made
    made.end_all()


def test_a_late_site_and_the_next_run(method: str, machine: Machine, tmp_path: Path, *, whole: bool) -> None:
    """The late site hands nothing in; the next run goes on with personal parts; all bytes are the simulator's."""
    data = tmp_path / "data"
    folders = [write_site(data / A, samples=30, seed=1)]
    late = write_site(tmp_path / LATE, samples=40, seed=3)
    words = ("--method", method, "--backbone", "mlp", "--sites", "1", "--quorum", "1")
    words += ("--lease-seconds", "2")
    server = machine.server(*words, "--rounds", "2")
    machine.client(folders[0], "--stay")
    runs = machine.home / "pfl-state" / "runs"
    machine.wait_for(lambda: status_of(runs) == "finished", server, "server")

    assert 0 == machine.finish(machine.client(late, "--personalize-only"), log=LATE)
    (own,) = (machine.home / "state").glob(f"pfl/sites/*/{LATE}")
    assert {"enrolment", "visit", "card", "calls"} == kinds_of(own / "audit.jsonl")
    first = spec_of(newest(runs))
    assert [(A,)] == rows_of(newest(runs), "select name from site")
    given = {"method": method, "sites": 1, "state": tmp_path / "alone" / "coordinator"}
    settings = settle(ServerSettings, given, what="test")
    sites = tmp_path / "alone" / "sites"
    before = simulate(settings, folders, sites, pinned=first, newcomers=[late])
    assert bytes_of(own / "runs" / first.id / "serving") == bytes_of(before.newcomers[LATE] / "serving")
    if not whole:
        return

    assert 0 == machine.stop(server)
    again = (*words, "--rounds", str(NEXT_ROUNDS), "--begin-from", first.id)
    server = machine.server(*again)
    machine.wait_for(lambda: len(committed(runs, but=first.id)) >= 1, server, "server")
    server.kill()
    server.wait(30)
    server = machine.server(*again)
    machine.wait_for(
        lambda: newest(runs).name != first.id and status_of(runs) == "finished", server, "server"
    )
    second = spec_of(newest(runs))
    assert (first.id, first.hash) == (second.begins_from.run, second.begins_from.spec)
    assert [1, 2, NEXT_ROUNDS] == committed(runs, but=first.id)

    after = simulate(replace(settings, begin_from=first.id), folders, sites, pinned=second)
    assert bytes_of(runs / second.id / "checkpoints") == bytes_of(after.coordinator / "checkpoints")
    (folder,) = (machine.home / "state").glob(f"pfl/sites/*/{A}/runs/{second.id}")
    assert bytes_of(folder / "serving") == bytes_of(after.sites[A] / "serving")


def newest(runs: Path) -> Path:
    """The folder of the run that was begun last."""
    return runs / (runs.parent / "current").read_text().strip()


def rows_of(run: Path, query: str) -> list[tuple[object, ...]]:
    """What a run's journal says, also while it is written."""
    file = run / "journal.sqlite"
    if not file.exists():
        return []
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


def status_of(runs: Path) -> object:
    """The newest run's; nothing before there is one."""
    if not (runs.parent / "current").exists():
        return None
    return next((status for (status,) in rows_of(newest(runs), "select status from run")), None)


def committed(runs: Path, *, but: str) -> list[object]:
    """The newest run's committed rounds, unless it is this one."""
    if newest(runs).name == but:
        return []
    query = "select round from attempt where status = 'committed' order by round"
    return [number for (number,) in rows_of(newest(runs), query)]


def spec_of(run: Path) -> RunSpec:
    """A run's specification."""
    return RunSpec.from_json(str(rows_of(run, "select spec from run")[0][0]))


def kinds_of(book: Path) -> set[str]:
    """What a site lists as having left, less what it lists for itself."""
    said = [json.loads(line) for line in book.read_text().splitlines()]
    assert [] == [line for line in said if line["kind"] == UPDATE]
    return {line["kind"] for line in said}


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files of tensors in a folder."""
    found = {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}
    assert found, folder
    return found
