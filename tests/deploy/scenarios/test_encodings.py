"""Runs whose numbers cross in another form: over the network as in the simulator, replayed, and with fewer bytes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from pfl_client.trainer_process.api import Done, Job, Progress
from pfl_client.trainer_process.task_errors import Diverged
from pfl_common.app.config import settle
from pfl_common.spec.manifest import full_size
from pfl_common.spec.run import RunSpec
from pfl_deploy.cli import main
from pfl_deploy.simulation.loopback import LoopbackBench
from pfl_deploy.simulation.simulate import find_sites, simulate
from pfl_server.settings import ServerSettings
from pfl_server.store.journal import Journal
from tests.deploy.support.in_one_process import Neighbours
from tests.deploy.support.processes import write_site
from tests.words import check_clear, speak

A, B, C = (f"hospital_{x}" for x in "abc")
UP = {"bf16": 0.52, "topk:0.02": 0.06}
"""By encoding: the bytes of an update beside float32 at most, seal and all."""


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Three sites of unequal size."""
    return [
        write_site(tmp_path / "data" / site, samples=16 + 4 * seed, size=12, seed=seed)
        for seed, site in enumerate((A, B, C))
    ]


def build_settings(state: Path, encoding: str, **words: object) -> ServerSettings:
    """A small run."""
    given = {
        "method": "fedper",
        "backbone": "resnet8",
        "rounds": 3,
        "sites": 3,
        "quorum": 1.0,
        "state": state,
    }
    return settle(ServerSettings, {**given, "encoding": encoding, **words}, what="test")


def list_files(folder: Path) -> dict[str, bytes]:
    """Its tensor files by name."""
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


@pytest.mark.parametrize("encoding", UP)
def test_network_and_simulator_end_in_the_same_bytes(
    encoding: str, folders: list[Path], tmp_path: Path
) -> None:
    """States, what sites keep and what did not cross; and what was sent is as small as is pinned."""
    folders, words = folders[:2], {"rounds": 2, "sites": 2}
    settings = build_settings(tmp_path / "coordinator", encoding, **words)
    run, sites = Neighbours(settings, folders, tmp_path / "sites").play()
    spec = RunSpec.from_json((sites[A] / "spec.json").read_text())
    assert encoding == spec.encoding
    again = build_settings(tmp_path / "alone" / "coordinator", encoding, **words)
    alone = simulate(again, folders, tmp_path / "alone" / "sites", pinned=spec)
    assert list_files(alone.coordinator / "checkpoints") == list_files(run / "checkpoints")
    for site in (A, B):
        for folder in ("generations", "serving"):
            found = list_files(sites[site] / folder)
            assert found
            assert found == list_files(alone.sites[site] / folder)
    whole = sum(4 * value for value in count_numbers(spec).values())
    listed = [json.loads(line) for line in (tmp_path / "sites" / A / "audit.jsonl").read_text().splitlines()]
    updates = [line["bytes"] for line in listed if line["kind"] == "update"]
    assert 2 == len(updates)
    assert max(updates) < UP[encoding] * whole


def count_numbers(spec: RunSpec) -> dict[str, int]:
    """Numbers of a model in an update, by name."""
    entries = spec.manifests["init"]
    sent = {
        e.name.removeprefix("sum.") for e in spec.manifests["train/train/up"] if e.name.startswith("sum.")
    }
    return {entry.name: full_size((entry,)) // 4 for entry in entries if entry.name in sent}


@pytest.mark.parametrize("encoding", ["int8:stochastic"])
def test_a_run_with_losses_is_played_again(
    encoding: str, folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites drop out by chance; one round is abandoned, and what sites had kept of it goes with it."""
    work = LoopbackBench.work

    async def diverge_once(bench: LoopbackBench, job: Job, progress: Progress) -> Done:
        if (job.task.kind, job.task.round, job.task.attempt) == ("train", 3, 1) and job.task.since == 2:
            await work(bench, job, progress)
            raise Diverged("the model is spoilt")
        return await work(bench, job, progress)

    words = {"rounds": 5, "drop": 0.3, "quorum": "majority", "robust": "median", "seed": 3}
    with monkeypatch.context() as patch:
        patch.setattr(LoopbackBench, "work", diverge_once)
        settings = build_settings(tmp_path / "first", encoding, **words)
        run = simulate(settings, find_sites(tmp_path / "data"), tmp_path / "sites").coordinator
    with closing(Journal(run / "journal.sqlite")) as journal:
        rows = journal.rounds()
    assert ["committed", "committed", "abandoned", "committed"] == [row["status"] for row in rows][:4]
    assert "dropped" in {reason for row in rows[2:] for reason in row["losses"].values()}
    said = speak(main, "simulate", "--replay", run, "--data", tmp_path / "data", "--json")
    check_clear(said, 0)
    assert 5 == json.loads(said.out)["round"]
