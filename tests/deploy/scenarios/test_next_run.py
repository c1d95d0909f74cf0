"""Next month's run, in one process: it begins with the last one's models, personal parts included, or says why not."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pfl_common.errors import DataError, SettingError, StateError
from pfl_deploy.simulation.replay import replay
from pfl_deploy.simulation.simulate import Result, open_host, play, simulate
from pfl_server.settings import ServerSettings
from tests.deploy.support.processes import write_site

A, B, NEW = "hospital_a", "hospital_b", "hospital_c"
GOES_ON = ("ditto", "fedamp", "lgfedavg")
"""Methods whose sites are measured before training with what the last FINISH has measured: a second model, a whole
model beside those that the coordinator keeps, an encoder.
"""


class Months:
    """One federation's state folders, and what is asked of it month by month."""

    def __init__(self, folder: Path, method: str = "fedper", **asked: object) -> None:
        self.folder, self.state = folder, folder / "state"
        self.sites = [
            write_site(folder / A, samples=12, size=8, classes=("a", "b"), seed=1),
            write_site(folder / B, samples=10, size=8, classes=("a", "b"), seed=2),
        ]
        given = {"method": method, "rounds": 2, "backbone": "mlp", "quorum": 1.0, "sites": 2, "seed": 3}
        self.asked = ServerSettings(**(given | asked), state=self.state / "coordinator")

    def play(self, **changed: object) -> Result:
        """Play a run with these settings changed."""
        asked = replace(self.asked, **changed)
        return simulate(replace(asked, sites=len(self.sites)), self.sites, self.state / "sites")


def scores(result: Result, site: str, task: str) -> dict[str, object]:
    """All that a site measured before a task's training."""
    lines = (result.sites[site] / "history.jsonl").read_text().splitlines()
    (found,) = (line["scores"] for line in map(json.loads, lines) if line["task"] == task)
    return {name: values for name, values in found.items() if name.startswith("pre/")}


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> tuple[Months, Result]:
    """A federation after its first run, which no test changes."""
    months = Months(tmp_path_factory.mktemp("month"))
    return months, months.play()


@pytest.mark.parametrize("method", GOES_ON)
def test_sites_begin_where_they_ended(tmp_path: Path, method: str) -> None:
    """With first values from another seed the first measurement is the last one of the run before, at each site; a new
    site begins as a newcomer does.
    """
    months = Months(tmp_path, method)
    before = months.play()
    months.sites.append(write_site(tmp_path / NEW, samples=10, size=8, classes=("a", "b"), seed=4))
    after = months.play(begin_from=before.spec.id, seed=8, rounds=3)
    assert (before.spec.id, before.spec.hash, 2) == (
        after.spec.begins_from.run,
        after.spec.begins_from.spec,
        after.spec.begins_from.round,
    )
    for site in (A, B):
        assert scores(before, site, "000002-1-finish") == scores(after, site, "000001-1-train"), site
    assert ["000001-1-train", "000002-1-train", "000003-1-train", "000003-1-finish"] == [
        task for task, _ in after.curves()[NEW].points
    ]


@pytest.mark.parametrize("method", ["fedfomo", "fedcac"])
def test_broken_off_it_ends_in_the_same_bytes(tmp_path: Path, method: str) -> None:
    """A run that began from another, broken off after its first round, goes on from its own folder alone."""
    ends = []
    for place in ("whole", "broken"):
        months = Months(tmp_path / place, method)
        before = months.play()
        if place == "broken":
            asyncio.run(break_off(months, before.spec.id))
            shutil.rmtree(before.coordinator)
        after = months.play(begin_from=before.spec.id)
        checkpoints = sorted((after.coordinator / "checkpoints").glob("*.safetensors"))
        ends.append([file.read_bytes() for file in checkpoints])
    assert ends[0] == ends[1]


async def break_off(months: Months, run: str) -> None:
    """Play until a round is committed, and no further."""
    host = open_host(replace(months.asked, begin_from=run))
    playing = asyncio.create_task(play(host, months.sites, months.state / "sites"))
    while host.books is None or not host.books.journal.committed():
        assert not playing.done()
        await asyncio.sleep(0)
    playing.cancel()
    with suppress(asyncio.CancelledError):
        await playing


def test_a_line_of_runs(tmp_path: Path) -> None:
    """A third run begins from the second; each takes along the updates that its coordinator refers to."""
    months = Months(tmp_path, "fedamp", rounds=1)
    second = months.play(begin_from=months.play().spec.id)
    third = months.play(begin_from=second.spec.id)
    assert second.spec.id == third.spec.begins_from.run
    for site in (A, B):
        assert scores(second, site, "000001-1-finish") == scores(third, site, "000001-1-train"), site


def test_a_site_that_lost_its_state_begins_as_a_new_one(tmp_path: Path) -> None:
    """The others go on with theirs."""
    months = Months(tmp_path)
    before = months.play()
    (months.state / "sites" / B / "runs" / before.spec.id / "vault.json").unlink()
    after = months.play(begin_from=before.spec.id)
    assert scores(before, A, "000002-1-finish") == scores(after, A, "000001-1-train")
    assert scores(before, B, "000002-1-finish") != scores(after, B, "000001-1-train")


def test_other_data_are_taken_and_another_class_is_refused(tmp_path: Path) -> None:
    """Next month's pictures are others; a class that the run before did not know is an error that says what to do."""
    months = Months(tmp_path)
    before = months.play()
    file = months.sites[0] / "train.npz"
    with np.load(file) as held:
        np.savez(file, x=255 - held["x"], y=held["y"])
    assert before.spec.data != months.play(begin_from=before.spec.id).spec.data
    (months.sites[0] / "classes.json").write_text('["a", "c"]')
    with pytest.raises(DataError) as caught:
        months.play(begin_from=before.spec.id, new_run=True)
    assert [] == [word for word in (A, "c", before.spec.id, "--begin-from") if word not in str(caught.value)]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "fedrep"}, ("fedper", "fedrep")),
        ({"backbone": "cnn"}, ("--backbone", "mlp", "cnn")),
        ({"begin_from": "fedper-009"}, ("no run is there",)),
        ({"encoder_projector": True}, ("--encoder-projector",)),
    ],
)
def test_what_does_not_fit_is_named(
    month: tuple[Months, Result], changed: dict[str, object], words: tuple[str, ...]
) -> None:
    """The first thing that differs, before any site is asked."""
    months, before = month
    with pytest.raises(SettingError) as caught:
        months.play(**({"begin_from": before.spec.id} | changed))
    assert [] == [word for word in words if word not in str(caught.value)]


def test_a_setting_that_lets_personal_tensors_leave_is_refused(tmp_path: Path) -> None:
    """LG-FedAvg with shared rounds would send up encoders that stayed: the first of their tensors is named."""
    months = Months(tmp_path, "lgfedavg")
    before = months.play()
    with pytest.raises(SettingError, match=r"sum\.encoder\.[^ ]*weight|sum\.encoder\.[^ ]*bias"):
        months.play(begin_from=before.spec.id, set={"pretrain_rounds": 1})


def test_a_run_that_began_from_another_is_not_replayed(tmp_path: Path) -> None:
    """Nobody but the sites has their own state of the run before: the error names it."""
    months = Months(tmp_path)
    before = months.play()
    after = months.play(begin_from=before.spec.id)
    with pytest.raises(StateError, match=before.spec.id):
        replay(after.coordinator, months.sites, tmp_path / "replay")


def test_newcomers_after_the_end(tmp_path: Path) -> None:
    """A site that comes after the end measures before and after it fits its head, and keeps a model."""
    months = Months(tmp_path)
    late = write_site(tmp_path / NEW, samples=12, size=8, classes=("a", "b"), seed=5)
    played = simulate(months.asked, months.sites, months.state / "sites", newcomers=[late])
    measured = played.tables()["newcomers"][NEW]
    assert {"pre/test/combined", "post/test/combined"} == measured.keys()
    assert (played.newcomers[NEW] / "serving" / "serving.safetensors").exists()
    assert sorted([A, B]) == sorted(played.spec.roster)
