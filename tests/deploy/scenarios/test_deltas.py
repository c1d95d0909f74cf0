"""Runs whose downloads cross as changes of what sites were sent before: as small as pinned, and the same bits whatever
happens to a site or to the coordinator.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from pfl_client.trainer_process.api import Done, Job, Progress
from pfl_client.trainer_process.task_errors import Diverged
from pfl_common.app.config import settle
from pfl_common.sealing import sealed_size
from pfl_common.spec.manifest import full_size
from pfl_common.spec.run import Kind, RunSpec, Task
from pfl_common.tensors.sent_state import SENT
from pfl_common.tensors.state import State
from pfl_deploy.cli import main
from pfl_deploy.report.sources.coordinator import read_record
from pfl_deploy.report.sources.traffic import read_traffic
from pfl_deploy.simulation.loopback import LoopbackBench
from pfl_deploy.simulation.simulate import Result, simulate
from pfl_server.settings import ServerSettings
from pfl_server.sites.downloads import Ahead
from pfl_server.store.round_base import Base
from tests.deploy.support.in_one_process import Neighbours
from tests.deploy.support.processes import write_site
from tests.words import check_clear, speak

A, B, C = (f"hospital_{x}" for x in "abc")
SERIAL = re.compile(r"(?<=-[0-9])-[0-9]+[.]")
"""In a generation's name, behind round and attempt."""


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Three sites of unequal size."""
    return [
        write_site(tmp_path / "data" / site, samples=16 + 4 * seed, size=12, seed=seed)
        for seed, site in enumerate((A, B, C))
    ]


def build_settings(state: Path, **words: object) -> ServerSettings:
    """A small run."""
    given = {"method": "fedper", "backbone": "mlp", "rounds": 4, "sites": 3, "quorum": 1.0}
    given |= {"encoding": "int8", "downlink": "delta", "state": state / "coordinator"}
    return settle(ServerSettings, given | words, what="test")


def play(state: Path, folders: list[Path], **words: object) -> Result:
    """A run in one process."""
    return simulate(build_settings(state, **words), folders, state / "sites")


def list_files(result: Result) -> dict[str, bytes]:
    """All that coordinator and sites keep of tensors; a generation's name counts tasks too."""
    places = {"coordinator": result.coordinator / "checkpoints"}
    places |= {site: folder / "generations" for site, folder in result.sites.items()}
    places |= {f"{site}'s model": folder / "serving" for site, folder in result.sites.items()}
    found = {
        f"{place} {SERIAL.sub('.', file.name)}": file.read_bytes()
        for place, folder in places.items()
        for file in folder.glob("*.safetensors")
    }
    assert 2 + 3 * len(result.sites) == len(found)
    return found


def sent_in(file: Path) -> dict[str, bytes]:
    """What a generation or a checkpoint says was sent."""
    return {name: value.numpy().tobytes() for name, value in State(load_file(file)).under(SENT).items()}


def sizes(spec: RunSpec) -> tuple[int, int]:
    """Bytes of a download to train, whole and as a change."""
    return full_size(spec.manifests["train/train/down"]), full_size(spec.delta("train"))


def downloads(site: Path) -> dict[str, int]:
    """The bytes that a site was sent, by task."""
    lines = [json.loads(line) for line in (site / "received.jsonl").read_text().splitlines()]
    return {line["task"]: line["bytes"] for line in lines}


@pytest.mark.parametrize("encoding", ["int8:stochastic", "topk"])
def test_network_and_simulator_end_in_the_same_bytes(
    encoding: str, folders: list[Path], tmp_path: Path
) -> None:
    """As few bytes come down as the form has; coordinator and sites hold the same to the bit."""
    folders, words = folders[:2], {"encoding": encoding, "rounds": 3, "sites": 2}
    run, sites = Neighbours(
        build_settings(tmp_path / "net", **words), folders, tmp_path / "net" / "sites"
    ).play()
    spec = RunSpec.from_json((sites[A] / "spec.json").read_text())
    again = build_settings(tmp_path / "alone", **words)
    alone = simulate(again, folders, tmp_path / "alone" / "sites", pinned=spec)
    assert list_files(Result(spec, run, sites, {})) == list_files(alone)
    whole, delta = sizes(spec)
    assert 0.27 * whole > delta
    for site in (A, B):
        found = downloads(sites[site])
        assert 3 * [sealed_size(delta)] == [found[f"00000{n}-1-train"] for n in (1, 2, 3)]
        (newest,) = (sites[site] / "generations").glob("000003-*")
        assert sent_in(newest) == sent_in(run / "checkpoints" / "round-000003.safetensors")
        assert sent_in(newest)


def test_a_site_that_comes_back(folders: list[Path], tmp_path: Path) -> None:
    """Two of three are asked: one that was in the round before is sent the change, another the whole, and both hold the
    same; the report knows who was sent what. Played again from the journal it ends in the same bytes.
    """
    result = play(tmp_path, folders, participation="0.67", rounds=5, seed=2)
    whole, delta = sizes(result.spec)
    record = read_record(result.coordinator)
    handed = {tried.round: record.handed[f"{tried.round:06d}-1-train"] for tried in record.committed}
    expected = {
        number: {site: delta if since == number - 1 else whole for site, since in who.items()}
        for number, who in handed.items()
    }
    assert {whole, delta} in [set(one.values()) for one in expected.values()], "one of each in a round"
    found = {site: downloads(folder) for site, folder in result.sites.items()}
    for number, who in expected.items():
        assert who == {site: found[site][f"{number:06d}-1-train"] for site in who}
    measured = full_size(result.spec.manifests["evaluate/train/down"])
    pinned = read_traffic(record).pinned
    for number in (2, 3, 4, 5):
        others = len(record.handed.get(f"{number:06d}-1-evaluate", {}))
        trained = [sealed_size(size) for size in expected[number].values()]
        assert sum(trained) + others * sealed_size(measured) == pinned[number].down
    last = [max((folder / "generations").glob("000005-*"), default=None) for folder in result.sites.values()]
    held = [sent_in(file) for file in last if file is not None]
    assert 2 == len(held)
    assert held[0] == held[1] == sent_in(result.coordinator / "checkpoints" / "round-000005.safetensors")
    said = speak(main, "simulate", "--replay", result.coordinator, "--data", tmp_path / "data", "--json")
    check_clear(said, 0)
    assert 5 == json.loads(said.out)["round"]


class Killed(BaseException):
    """The coordinator's end, in the middle of a line."""


@pytest.mark.parametrize("moment", ["before it lasts", "before it is committed", "with a damaged checkpoint"])
def test_a_coordinator_that_is_killed_between_two_rounds(
    moment: str, folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command goes on from what the checkpoint says was sent; one that is damaged is made again, with what was
    sent in its round.
    """
    undisturbed = play(tmp_path / "whole", folders)
    settle_base, deaths = Ahead.settle, [3]

    async def die_once(ahead: Ahead, base: Base, following: Task | None) -> Base:
        if base.after in deaths:
            deaths.clear()
            if moment == "before it is committed":
                await settle_base(ahead, base, following)
            raise Killed
        return await settle_base(ahead, base, following)

    monkeypatch.setattr(Ahead, "settle", die_once)
    with pytest.raises((Killed, BaseExceptionGroup)):
        play(tmp_path / "killed", folders)
    assert [] == deaths
    if moment == "with a damaged checkpoint":
        (file,) = tmp_path.glob("killed/coordinator/runs/*/checkpoints/round-000002.safetensors")
        file.write_bytes(file.read_bytes()[:-1])
    resumed = play(tmp_path / "killed", folders)
    assert list_files(undisturbed) == list_files(resumed)


def test_a_run_that_falls_back(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Round 3 begins once more, from the state after round 1: everybody is sent that whole, and from then on changes
    again. Played again from the journal it ends in the same bytes.
    """
    work = LoopbackBench.work

    async def diverge(bench: LoopbackBench, job: Job, progress: Progress) -> Done:
        if (job.task.kind, job.task.round, job.task.attempt) == (Kind.TRAIN, 3, 1):
            raise Diverged("the model is spoilt")
        return await work(bench, job, progress)

    with monkeypatch.context() as patch:
        patch.setattr(LoopbackBench, "work", diverge)
        result = play(tmp_path, folders, rounds=5)
    whole, delta = sizes(result.spec)
    found = downloads(result.sites[A])
    keys = ("000002-1-train", "000003-1-train", "000003-2-train", "000004-1-train", "000005-1-train")
    assert [delta, delta, whole, delta, delta] == [found[key] for key in keys]
    said = speak(main, "simulate", "--replay", result.coordinator, "--data", tmp_path / "data", "--json")
    check_clear(said, 0)


def test_a_site_that_holds_other_numbers(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a state folder was brought back from a copy: it does not train on rubbish, is sent the whole in the next
    attempt, and the run ends as if nothing had happened.
    """
    undisturbed = play(tmp_path / "whole", folders)
    work, spoilt = LoopbackBench.work, []

    async def spoil(bench: LoopbackBench, job: Job, progress: Progress) -> Done:
        if job.as_delta and job.task.round == 3 and not spoilt:
            assert job.kept is not None
            held = {n: v + n.startswith(SENT) for n, v in load_file(job.kept).items()}
            save_file(held, job.kept)
            spoilt.append(job.kept)
        return await work(bench, job, progress)

    monkeypatch.setattr(LoopbackBench, "work", spoil)
    result = play(tmp_path / "spoilt", folders)
    site = spoilt[0].parents[1]
    whole, delta = sizes(result.spec)
    row = next(tried for tried in read_record(result.coordinator).attempts if tried.status == "abandoned")
    assert ["tampered"] == list(row.losses.values())
    others = [folder for name, folder in result.sites.items() if name not in row.losses]
    (lost,) = (folder for name, folder in result.sites.items() if name in row.losses)
    assert site == lost
    assert [delta, whole] == [downloads(lost)[f"000003-{n}-train"] for n in (1, 2)]
    assert {delta} == {downloads(folder)["000003-2-train"] for folder in others}
    ended, before = list_files(result), list_files(undisturbed)
    same = {name for name in before if "coordinator" in name or "model" in name}
    assert {name: before[name] for name in same} == {name: ended[name] for name in same}
