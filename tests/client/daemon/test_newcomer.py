"""A site that takes part in no round: it asks, fetches, fits, and says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pfl_client.daemon import newcomer, retry
from pfl_client.daemon.fetching import Fetching
from pfl_client.daemon.newcomer import Newcomer
from pfl_client.policy.policy_file import read
from pfl_client.policy.refusal import Forbidden
from pfl_client.run_folder.audit import entries
from pfl_client.trainer_process.api import DataFolder, Done, Job, Progress, TrainerLost
from pfl_client.trainer_process.task_errors import Tampered
from pfl_common.errors import Refused, RunFailed, StateError
from pfl_common.spec.messages import Blob, Joined, Over, Visited
from pfl_common.spec.run import Description, Kind
from pfl_deploy.simulation.loopback import OpenEnvelopes
from tests.client.run_folder.test_folder import take_part
from tests.client.support.scripted_site import BYTES, DESCRIPTION, SITE, assign, pin


@dataclass
class Line:
    """A Link that can be visited and fetched from, and nothing else."""

    answers: list[Visited | None]
    gone: int = 0
    visits: int = 0

    async def visit(self) -> Visited | None:
        self.visits += 1
        return self.answers.pop(0)

    async def fetch(self, blob: Blob, into: Path, *, kind: str = "init", **about: object) -> None:
        if self.gone and kind == "finish":
            self.gone -= 1
            raise Refused("unknown_blob", "no such bytes")
        into.write_bytes(BYTES)


@dataclass
class Trainer:
    """A Bench that writes down its jobs."""

    losses: int = 0
    jobs: list[Job] = field(default_factory=list)

    async def describe(self, folder: DataFolder) -> Description:
        return DESCRIPTION

    async def open(self, folder: DataFolder, spec: str, init: Path) -> None:
        assert init.exists()

    async def work(self, job: Job, progress: Progress) -> Done:
        self.jobs.append(job)
        if self.losses:
            self.losses -= 1
            raise TrainerLost("killed")
        job.serve_as.write_bytes(b"a model")
        measured = [3.0, 4.0, 0.75, 0.5, 0.5]
        return Done({"pre/test/combined": [2.0, 4.0, 0.5, 0.25, 1.0], "post/test/combined": measured})

    async def close(self) -> None:
        """Nothing to end."""


def visited(**changed: object) -> Visited:
    """What the coordinator answers after round 3."""
    return Visited(Joined(pin().to_json(), Blob("first", 5)), replace(assign(Kind.FINISH, 3), **changed))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits here."""
    monkeypatch.setattr(newcomer, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.0)


@pytest.fixture
def enter(tmp_path: Path) -> Callable[[Line, Trainer], Newcomer]:
    """Makes a site with a line and a trainer."""

    def make(line: Line, trainer: Trainer) -> Newcomer:
        folder = DataFolder(tmp_path / "data", SITE)
        return Newcomer(folder, link=line, bench=trainer, envelopes=OpenEnvelopes(), state=tmp_path)

    return make


async def test_it_ends_with_a_model(enter: Callable[[Line, Trainer], Newcomer], tmp_path: Path) -> None:
    """It waits for the first round, asks once more for a state that went, and its trainer fits alone."""
    line, trainer = Line([None, visited(), visited()], gone=1), Trainer(losses=1)
    assert Over("finished") == await enter(line, trainer).run()
    assert 3 == line.visits
    assert [(True, None)] * 2 == [(job.alone, job.kept) for job in trainer.jobs]
    folder = tmp_path / "runs" / "run-1"
    assert b"a model" == (folder / "serving" / "serving.safetensors").read_bytes()
    assert [] == list((folder / "generations").iterdir())
    assert [] == [entry["kind"] for entry in entries(tmp_path)], "a line without calls has nothing to list"


async def test_a_site_with_rounds_of_its_own_is_refused(
    enter: Callable[[Line, Trainer], Newcomer], tmp_path: Path
) -> None:
    """It would get another model than that of its rounds."""
    take_part(tmp_path / "runs" / "run-1", pin())
    with pytest.raises(StateError, match="--personalize-only"):
        await enter(Line([visited()]), Trainer()).run()


async def test_only_a_finish_is_taken(enter: Callable[[Line, Trainer], Newcomer]) -> None:
    """Nothing that a coordinator answers makes it train for others."""
    with pytest.raises(Tampered):
        await enter(Line([Visited(visited().joined, assign(Kind.TRAIN, 3))]), Trainer()).run()


async def test_a_trainer_that_ends_twice(enter: Callable[[Line, Trainer], Newcomer]) -> None:
    """Then the site gives up, in words."""
    with pytest.raises(RunFailed, match="killed"):
        await enter(Line([visited()]), Trainer(losses=2)).run()


async def test_fetching_leaves_what_is_there(tmp_path: Path) -> None:
    """The kind of a download goes with it, for the count of bytes."""
    kinds: list[str] = []

    class Kinds(Line):
        async def fetch(self, blob: Blob, into: Path, *, kind: str = "init", **about: object) -> None:
            kinds.append(kind)
            await super().fetch(blob, into, kind=kind, **about)

    site = Newcomer(
        DataFolder(tmp_path, SITE),
        link=Kinds([]),
        bench=Trainer(),
        envelopes=OpenEnvelopes(),
        state=tmp_path,
    )
    fetching: Fetching = site._fetching
    await fetching.bring(Blob("x", 1), tmp_path / "x", kind="finish")
    assert (["finish"], BYTES) == (kinds, (tmp_path / "x").read_bytes())


async def test_a_run_that_the_policy_forbids_is_not_fitted_to(tmp_path: Path) -> None:
    """Nothing is fetched of it; a visitor has nobody to decline to."""
    (tmp_path / "policy.toml").write_text('[runs]\nmethods = ["dualfed"]')
    line, trainer = Line([visited()]), Trainer()
    site = Newcomer(
        DataFolder(tmp_path / "data", SITE),
        link=line,
        bench=trainer,
        envelopes=OpenEnvelopes(),
        state=tmp_path,
        policy=read(tmp_path / "policy.toml"),
    )
    with pytest.raises(Forbidden, match=r"runs\.methods"):
        await site.run()
    assert ([], []) == (trainer.jobs, list((tmp_path / "runs").glob("*")))
    assert "refused" in {entry["kind"] for entry in entries(tmp_path)}
