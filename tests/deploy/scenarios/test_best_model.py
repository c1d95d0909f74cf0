"""The best round's model from end to end: real sites that are killed keep the same one as sites that are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from pfl_client.prediction import Predictor
from pfl_common.app.config import settle
from pfl_common.spec.run import RunSpec
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.killing import Federation, Mortals
from tests.deploy.support.processes import write_site

A, B = "hospital_a", "hospital_b"
HIT = 2
WORDS = {"method": "fedper", "rounds": "3", "backbone": "mlp", "quorum": "1", "keep": "best"}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    """Two sites without a validation part, large enough to hold some samples back."""
    folders = [write_site(tmp_path / "data" / site, samples=80, seed=seed) for seed, site in ((1, A), (2, B))]
    machine = Mortals(tmp_path / "machine")
    words = [part for name, value in WORDS.items() for part in (f"--{name}", value)]
    yield Federation(machine, folders, *words, "--lease-seconds", "2")
    machine.end_all()


def test_sites_that_are_killed_keep_the_same_best_model(federation: Federation, tmp_path: Path) -> None:
    """One dies when a better model is in force and the round that measured it is not kept yet."""
    federation.machine.wish(A, "bettered", [HIT])
    federation.serve()
    federation.enter(A, B)
    assert HIT == federation.death(A, "bettered")
    assert (HIT - 1, [HIT - 1]) == (federation.kept(A)[0], read_best(federation.run_of(A)))
    federation.enter(A)
    assert [0, 0] == federation.end()
    assert 0 == federation.machine.stop(federation.server)

    spec = RunSpec.from_json((federation.run_of(A) / "spec.json").read_text())
    assert (0.15, "best") == (spec.validation, spec.keep)
    alone = play_alone(federation, spec, tmp_path / "alone")
    for site in (A, B):
        killed, quiet = federation.run_of(site) / "serving", alone.sites[site] / "serving"
        for name in ("best.safetensors", "serving.safetensors"):
            assert (quiet / name).read_bytes() == (killed / name).read_bytes(), (site, name)
        assert_it_was_the_best(killed)


def play_alone(federation: Federation, spec: RunSpec, folder: Path) -> Result:
    """The same run in one process, undisturbed."""
    settings = settle(ServerSettings, {"method": "fedper", "sites": 2, "state": folder / "c"}, what="test")
    return simulate(settings, federation.folders, folder / "sites", pinned=spec)


def read_best(run: Path) -> list[int]:
    """The rounds of the best models in force."""
    file = run / "best" / "best.json"
    entries = json.loads(file.read_text())["entries"] if file.exists() else []
    return [entry["measured"]["round"] for entry in entries]


def assert_it_was_the_best(serving: Path) -> None:
    """By what the site itself measured, round by round; the file says the round and the score."""
    best = Predictor.load(serving, which="best").served.best
    assert best is not None
    measured = {}
    for line in (serving.parent / "history.jsonl").read_text().splitlines():
        entry = json.loads(line)
        number, _, kind = entry["task"].split("-")
        seen = entry["scores"]["pre/validation/combined"]
        measured[int(number) - (kind != "finish")] = (seen["accuracy"], -seen["loss"])
    del measured[0]
    assert max(measured, key=lambda number: measured[number]) == best.round
    assert (best.accuracy, -best.loss) == measured[best.round]
    assert {"samples": 12} == {name: asdict(best)[name] for name in ("samples",)}
